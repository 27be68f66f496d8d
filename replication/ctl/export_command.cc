// hyperloopctl export
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>

#include "ctl/command.h"
#include "ctl/log_seen.h"
#include "ctl/nodes.h"
#include "ctl/reading.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/text.h"
#include "inspect/export.h"
#include "region/record.h"
#include "region/region_layout.h"

namespace hyperloop::ctl {
namespace {

struct ExportOptions {
  Where where;
  uint32_t replica = 0;
  std::string to;
  bool live = false;
  bool partial = false;
  std::string files;
};

struct Other {
  uint32_t index = 0;
  std::string name;
  std::unique_ptr<NodeView> view;
  NodeStatus status;
};

// The other replicas of the group, as far as they can be read. `unread` gets a line for each that
// cannot, and for each that is blank: it may have lost what it held.
std::vector<Other> LookAtOthers(Nodes& nodes, uint32_t replica, const std::string& group,
                                std::vector<std::string>* unread) {
  std::vector<Other> others;
  std::vector<Result<std::unique_ptr<NodeView>>> views = nodes.ViewAll();
  if (replica < views.size()) views[replica] = Aborted("it is read already");
  std::vector<Result<NodeStatus>> statuses = ReadAtOnce(views);
  for (uint32_t i = 0; i < views.size(); ++i) {
    if (i == replica) continue;
    const std::string& name = nodes.replicas()[i].name;
    Result<NodeStatus>& status = statuses[i];
    if (status.ok() && status->group.empty())
      status = NotFound("it is blank, so that its pool is new, or was lost");
    if (status.ok() && status->group != group) status = InvalidArgument("it is of another group");
    if (status.ok()) {
      others.push_back({i, name, std::move(*views[i]), std::move(*status)});
    } else {
      unread->push_back(Text(name, ": ", status.status().message()));
    }
  }
  return others;
}

// How many of the group's replicas were not compared, if these are enough to have gone on without
// the others, which would not know of it; 0: they are too few. A majority of the replicas that
// counted and one of all that there are have to agree to that (LeastReplicas).
size_t MayHaveGoneOn(const Nodes& nodes, const NodeStatus& own, const std::vector<Other>& others) {
  const auto compared = [&](const std::string& address) {
    const auto is_it = [&](const Other& other) {
      return nodes.replicas()[other.index].listen == address;
    };
    return std::ranges::any_of(others, is_it);
  };
  const auto counted = static_cast<size_t>(std::ranges::count_if(own.replicas, compared));
  const auto absent = static_cast<size_t>(std::ranges::count_if(own.absent, compared));
  const size_t voters = own.replicas.size(), all = voters + own.absent.size();
  if (voters == 0) return 0;
  const size_t left_voters = voters - 1 - std::min(counted, voters - 1);
  const size_t left = left_voters + own.absent.size() - absent;
  return left_voters > voters / 2 && left > all / 2 ? left : 0;
}

// kCorruption: the primary's pool, if it is on this machine, proves that the replica's log ends
// before what was acknowledged. A pool of another history is added to `*other_records`.
Status CheckAgainstPrimary(const std::string& pool, const std::string& name, const NodeStatus& own,
                           LogSeen& seen, std::vector<std::string>* unread,
                           std::vector<std::string>* other_records) {
  if (pool.empty() || !std::filesystem::exists(pool)) return {};
  const Result<std::unique_ptr<NodeView>> view = NodeView::OpenPool(pool);
  const Result<NodeStatus> primary = view.ok() ? (*view)->ReadStatus() : view.status();
  if (!primary.ok()) {
    unread->push_back(Text("the primary's pool: ", primary.status().message()));
    return {};
  }
  // A pool whose newest records are damaged does not say of which branch they are.
  const NodeStatus::Recorded& last = primary->configuration;
  const bool same_branch = last.epoch == 0 ? own.branch_epoch == 0
                                           : last.branch_epoch == own.branch_epoch &&
                                                 last.branch_owner == own.branch_owner;
  const bool same_group = primary->formatted && primary->group == own.group;
  if (!same_group || !same_branch) return {};
  if (primary->acked_seq <= own.last_seq) {
    const std::string pool_name = "the primary's pool " + pool;
    LogSeen log(pool_name, *primary, **view);
    HL_ASSIGN_OR_RETURN(const std::string lacks, seen.Lacks(log));
    if (!lacks.empty()) other_records->push_back(lacks);
    return {};
  }
  return Corruption(
      Text("open the database, which takes what is missing from the primary's pool or "
           "says why it cannot, or give --partial to have what there is: the log of ",
           name, " ends at sequence ", own.last_seq, ", and ", pool,
           " states that everything up to ", primary->acked_seq, " was acknowledged"));
}

bool IsAhead(const NodeStatus& other, const NodeStatus& own) {
  if (other.installed_epoch != own.installed_epoch)
    return other.installed_epoch > own.installed_epoch;
  return std::max(other.last_seq, other.acked_seq) > own.last_seq;
}

// Whether the record that `other` has behind the end of replica `replica`'s log was still on its
// way when the primary was killed, and so was not acknowledged. Then this replica has no trace of
// it (a record that arrived and was partly damaged would leave its number or a checksum), no
// replica further down the chain has it, and another replica's log ends where this one's does. The
// loss of a record at one member never looks like that. (After a power failure a later replica may
// have a record that no primary acknowledged and an earlier one lacks. That looks like a loss, and
// the export is refused.)
Result<bool> WasOnItsWay(NodeView& view, uint32_t replica, const NodeStatus& own,
                         const Other& other, const std::vector<Other>& others) {
  if (own.journal_size == 0) return false;
  bool another_lacks_it = false;
  for (const Other& each : others) {
    if (each.status.installed_epoch != own.installed_epoch ||
        each.status.acked_seq > own.last_seq || !each.status.log_error.empty())
      return false;
    if (each.index > replica && each.status.last_seq > own.last_seq) return false;
    another_lacks_it = another_lacks_it || each.status.last_seq == own.last_seq;
  }
  if (!another_lacks_it) return false;
  const uint64_t at = kJournalOffset + own.tail_position % own.journal_size;
  RecordHeader here, there;
  HL_RETURN_IF_ERROR(view.Read(at, std::as_writable_bytes(std::span(&here, 1))));
  HL_RETURN_IF_ERROR(other.view->Read(at, std::as_writable_bytes(std::span(&there, 1))));
  return there.seq == own.last_seq + 1 && here.seq != there.seq && here.crc != there.crc &&
         here.prev_crc != there.prev_crc;
}

// kCorruption: another replica's log is newer than this one's, or has records behind its end that
// this one may have had too. While a primary writes, logs of one epoch differ at any moment, so
// that only their epochs are compared. A replica of another history whose log is not newer is added
// to `*other_records`.
Status CheckAgainst(const std::vector<Other>& others, const std::string& name, NodeView& view,
                    uint32_t replica, const NodeStatus& own, LogSeen& seen, bool live,
                    std::vector<std::string>* other_records) {
  std::vector<LogSeen> logs;
  for (const Other& other : others) logs.emplace_back(other.name, other.status, *other.view);
  HL_RETURN_IF_ERROR(seen.LoadForComparison(logs));
  for (size_t i = 0; i < others.size(); ++i) {
    const Other& other = others[i];
    LogSeen& log = logs[i];
    HL_ASSIGN_OR_RETURN(const std::string lacks, seen.Lacks(log));
    const bool older_epoch = other.status.installed_epoch > own.installed_epoch;
    if (!IsAhead(other.status, own) || (live && !older_epoch)) {
      if (!lacks.empty()) other_records->push_back(lacks);
      continue;
    }
    HL_ASSIGN_OR_RETURN(const std::string kept, log.Lacks(seen));
    if (!kept.empty()) {
      return Corruption(Text("add --partial to have what ", name, " holds, and export from ",
                             other.name, " (--replica ", other.index,
                             "), too: the two have different histories of the group, and neither "
                             "export has all that was acknowledged: ",
                             kept));
    }
    HL_ASSIGN_OR_RETURN(const bool on_its_way, WasOnItsWay(view, replica, own, other, others));
    if (on_its_way && lacks.empty()) {
      std::fprintf(
          stderr,
          "hyperloopctl: %s has %llu records more, which were on their way when the primary "
          "ended: %s and another replica never had them\n",
          other.name.c_str(), static_cast<unsigned long long>(other.status.last_seq - own.last_seq),
          name.c_str());
      continue;
    }
    const std::string differ =
        older_epoch
            ? Text(name, " has the log of epoch ", own.installed_epoch, ", ", other.name,
                   " that of epoch ", other.status.installed_epoch)
            : Text("the log of ", name, " ends at sequence ", own.last_seq, ", ", other.name,
                   " has ", std::max(other.status.last_seq, other.status.acked_seq));
    return Corruption(Text(differ, ": writes that were acknowledged may be missing; export from ",
                           other.name, " (--replica ", other.index,
                           "), or give --partial to have what there is"));
  }
  return {};
}

// Names the sound replicas to use instead when this one's copy is damaged.
std::string WhoIsSound(const std::vector<Other>& others, const NodeStatus& own) {
  std::vector<NodeView*> views;
  for (const Other& each : others) views.push_back(each.view.get());
  const std::vector<Result<NodeStatus>> all = CheckAtOnce(views);
  std::string text;
  for (size_t i = 0; i < others.size(); ++i) {
    const Other& other = others[i];
    const Result<NodeStatus>& checked = all[i];
    if (!checked.ok() || !checked->log_error.empty() || !checked->damage.empty() ||
        IsAhead(own, *checked))
      continue;
    text += Text(text.empty() ? "" : ", ", other.name, " (--replica ", other.index, ")");
  }
  if (text.empty()) {
    return "no other replica within reach is sound: hyperloopctl verify --repair puts together "
           "what is sound of each; where files alone are damaged, not the log or a table, "
           "--partial "
           "exports the rest";
  }
  return "export from a sound one: " + text + "; hyperloopctl verify --repair mends this one";
}

// With what the exported replica was compared.
struct Comparison {
  std::vector<std::string> unread;  // with which replicas it could not be, and why
  // Which others prove records to be acknowledged that it lacks, although its log is as new.
  std::vector<std::string> other_records;
  size_t may_have_gone_on = 0;  // as MayHaveGoneOn
  std::string directory;        // where the database was bound when this log ended
};

Result<ExportReport> Export(const ExportOptions& options, Comparison* compared) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(options.where));
  HL_ASSIGN_OR_RETURN(const NodePlace* place, nodes.Replica(options.replica));
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, nodes.View(*place));
  if (!options.live) {
    HL_ASSIGN_OR_RETURN(const std::string primary, nodes.LivingPrimary());
    if (!primary.empty()) {
      return Busy("the group is in use by " + primary +
                  "; end it first, or add --live for a consistent prefix of what it wrote");
    }
  }
  HL_ASSIGN_OR_RETURN(const NodeStatus status, view->ReadStatus());
  const std::vector<Other> others =
      LookAtOthers(nodes, options.replica, status.group, &compared->unread);
  compared->may_have_gone_on = MayHaveGoneOn(nodes, status, others);
  compared->directory = status.directory;
  const auto damaged = [&](const std::string& what) {
    return Corruption(Text(place->name, " is damaged: ", what, "; ", WhoIsSound(others, status)));
  };
  if (!status.log_error.empty()) return damaged(status.log_error);
  if (!status.formatted) return NotFound(place->name + " holds no database yet");
  HL_ASSIGN_OR_RETURN(const RegionImage image, view->Snapshot());
  LogSeen seen(place->name, status, image.bytes());
  Status behind = CheckAgainst(others, place->name, *view, options.replica, status, seen,
                               options.live, &compared->other_records);
  if (behind.ok() && !options.live)
    behind = CheckAgainstPrimary(nodes.primary_pool(), place->name, status, seen, &compared->unread,
                                 &compared->other_records);
  if (!behind.ok() && !options.partial) return behind;
  uint64_t known_acked = 0;
  for (const Other& other : others) {
    if (!options.partial && other.status.installed_epoch == status.installed_epoch)
      known_acked = std::max(known_acked, other.status.acked_seq);
  }
  const NewerImage newer = options.live ? [&] { return view->Snapshot(); } : NewerImage();
  Result<ExportReport> report =
      ExportFiles(image.bytes(), options.to, known_acked, options.partial,
                  options.files.empty() ? place->files : options.files, newer);
  if (report.status().code() == Code::kCorruption) return damaged(report.status().message());
  if (!report.ok()) return report;
  for (std::string& damage : report->damage) damage = place->name + ": " + damage;
  if (!behind.ok()) report->damage.insert(report->damage.begin(), behind.message());
  return report;
}

// An export without CURRENT is none of a database: one was being taken into the group, or removed
// from it. The first thing that such a group holds is nothing at all, then CURRENT.adopting. A
// group may also hold other files than a database's.
bool LacksCurrent(const std::string& directory) {
  bool data = false, others = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    if (name == "CURRENT") return false;
    const bool of_database =
        HoldsData(name) || name.starts_with("MANIFEST-") || name.starts_with("CURRENT.");
    (of_database ? data : others) = true;
  }
  return data || !others;
}

// True: what was exported is known to be all.
bool SayWhatWasNotCompared(const Comparison& compared) {
  for (const std::string& each : compared.unread) {
    std::fprintf(stderr,
                 "hyperloopctl: not compared with %s; that one may have acknowledged writes which "
                 "this one misses\n",
                 each.c_str());
  }
  for (const std::string& each : compared.other_records) {
    std::fprintf(stderr,
                 "hyperloopctl: keep that pool, and export from there, too, before one of the two "
                 "histories of the group is given up: %s\n",
                 each.c_str());
  }
  if (compared.may_have_gone_on == 0) return compared.other_records.empty();
  std::fprintf(
      stderr,
      "hyperloopctl: look first into the last primary's directory, %s as this replica was "
      "told last: where it is whole, it holds all that was acknowledged (hyperloopctl adopt "
      "takes it into a new group). %zu replicas were not compared, enough to have gone on "
      "without this one\n",
      compared.directory.c_str(), compared.may_have_gone_on);
  return false;
}

const char* WhatIsMissed(const std::string& name) {
  if (HoldsData(name)) return "missing";
  return name.starts_with("archive/")
             ? "left out (an archived log; GetUpdatesSince has a gap there)"
             : "left out (RocksDB makes its own)";
}

int Run(const ExportOptions& options) {
  Comparison compared;
  const Result<ExportReport> report = Export(options, &compared);
  const bool is_all = SayWhatWasNotCompared(compared);
  if (!report.ok()) return Fail(report.status());
  std::printf("exported %llu files, %llu B, up to sequence %llu, to %s\n",
              static_cast<unsigned long long>(report->files),
              static_cast<unsigned long long>(report->bytes),
              static_cast<unsigned long long>(report->last_seq), options.to.c_str());
  size_t needed = 0;
  for (const std::string& name : report->missing) {
    needed += HoldsData(name) ? 1 : 0;
    std::fprintf(stderr, "hyperloopctl: %s: %s\n", WhatIsMissed(name), name.c_str());
  }
  for (const std::string& name : report->unneeded)
    std::fprintf(stderr, "hyperloopctl: left out (the database's MANIFEST does not need it): %s\n",
                 name.c_str());
  for (const std::string& damage : report->damage)
    std::fprintf(stderr, "hyperloopctl: exported all the same: %s\n", damage.c_str());
  const bool lacks_current = LacksCurrent(options.to);
  if (lacks_current)
    std::fprintf(stderr,
                 "hyperloopctl: this is no whole database, because the group holds no CURRENT: a "
                 "database was being taken into it (hyperloopctl adopt), or removed from it\n");
  if (needed == 0)
    return is_all && report->damage.empty() && !lacks_current ? kExitOk : kExitIncomplete;
  std::fprintf(
      stderr,
      "hyperloopctl: take %zu files from another replica or the primary's directory, or "
      "give --files: they are not in the replica's directory of files, or it is not known, "
      "and the MANIFEST names them or cannot be read\n",
      needed);
  return kExitIncomplete;
}

}  // namespace

void AddExport(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export",
                                         "write the files that a replica holds into a directory "
                                         "that stock RocksDB opens; works on running, "
                                         "stopped and dead replicas, whose pools it never writes");
  AddWhere(command, &options->where);
  command->add_option("--replica", options->replica, "number of the replica, from 0")
      ->check(CLI::Range(0u, kMaxGroupSize - 1))
      ->type_name("N")
      ->required();
  command->add_option("--to", options->to, "a directory that is empty or does not exist")
      ->type_name("DIR")
      ->required();
  command->add_flag("--live", options->live,
                    "export a consistent prefix although a primary is alive");
  command->add_flag(
      "--partial", options->partial,
      "export what is left although the replica's log ends before another's, or "
      "bytes of its files (not its log or a table) are damaged; prints a warning, and "
      "the exit status is 3");
  command
      ->add_option("--files", options->files,
                   "the replica's directory of SST and blob files on this machine; needed unless "
                   "the replica is one of an emulated cluster")
      ->type_name("DIR");
  command->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
