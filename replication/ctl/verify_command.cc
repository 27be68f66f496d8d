// hyperloopctl verify
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "ctl/command.h"
#include "ctl/directory_program.h"
#include "ctl/log_seen.h"
#include "ctl/nodes.h"
#include "ctl/reading.h"
#include "files/file_store.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/store.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

constexpr char kRemedy[] =
    "; the next open makes them equal, and so does hyperloopctl verify --repair";

struct Member {
  std::string name;
  bool replica = true;
  std::unique_ptr<NodeView> view;
  NodeStatus status;

  bool sound() const { return status.log_error.empty() && status.damage.empty(); }
};

// Whether the group was served since by a taking of which the log of `pool` knows nothing: with
// another pool, or with this one before it lost its end. A taking writes to its own pool before any
// replica, so one that was cut short leaves no such pool behind.
bool IsOfFormerTaking(const NodeStatus& pool, const std::vector<Member>& replicas) {
  return std::ranges::any_of(replicas, [&pool](const Member& each) {
    const NodeStatus::Recorded& now = each.status.configuration;
    return each.status.group == pool.group && now.epoch > pool.configuration.epoch &&
           now.owner != pool.configuration.owner;
  });
}

// Whether the primary's pool proves acknowledged records that some replica's log lacks, as after
// replicas went back to older copies of their pools, and another primary went on from these.
Result<bool> ProvesOtherRecords(const NodeStatus& pool, NodeView& view,
                                const std::vector<Member>& replicas) {
  const std::string name = "primary";
  LogSeen log(name, pool, view);
  std::vector<LogSeen> logs;
  for (const Member& each : replicas) logs.emplace_back(each.name, each.status, *each.view);
  HL_RETURN_IF_ERROR(log.LoadForComparison(logs));
  for (LogSeen& theirs : logs) {
    HL_ASSIGN_OR_RETURN(const bool differ, log.IsAnotherHistoryThan(theirs));
    if (differ) return true;
  }
  return false;
}

// Checks each member alone; the group is at rest. `*left_out` says why the primary's pool is not
// among them; it is left as it is otherwise.
Result<std::vector<Member>> CheckAll(Nodes& nodes, std::string* left_out) {
  HL_ASSIGN_OR_RETURN(const std::string primary, nodes.LivingPrimary());
  if (!primary.empty()) {
    return Busy("the group is in use by " + primary +
                "; regions are equal only at rest, end it first");
  }
  std::vector<Member> members;
  std::vector<Result<std::unique_ptr<NodeView>>> views = nodes.ViewAll();
  for (size_t i = 0; i < views.size(); ++i) {
    HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, std::move(views[i]));
    members.push_back({nodes.replicas()[i].name, true, std::move(view), {}});
  }
  std::vector<NodeView*> to_check;
  for (const Member& each : members) to_check.push_back(each.view.get());
  std::vector<Result<NodeStatus>> checked = CheckAtOnce(to_check);
  for (size_t i = 0; i < members.size(); ++i) {
    if (!checked[i].ok()) return checked[i].status().WithContext(members[i].name);
    members[i].status = std::move(checked[i]).value();
  }
  if (::access(nodes.primary_pool().c_str(), F_OK) != 0) return members;
  HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, NodeView::OpenPool(nodes.primary_pool()));
  Result<NodeStatus> status = view->Check();
  if (!status.ok()) return status.status().WithContext("primary");
  HL_ASSIGN_OR_RETURN(const bool proves, ProvesOtherRecords(*status, *view, members));
  if (!proves && IsOfFormerTaking(*status, members)) {
    *left_out = Text("; left out: ", nodes.primary_pool(),
                     ", whose log ends before the group's newest epoch: it is a former primary's, "
                     "or has lost its end; an opening that uses it makes it equal");
  } else {
    members.push_back({"primary", false, std::move(view), *std::move(status)});
  }
  return members;
}

std::string Names(const std::vector<Member>& members, bool sound) {
  std::string names;
  for (const Member& member : members) {
    if (member.sound() == sound) names += (names.empty() ? "" : ", ") + member.name;
  }
  return names;
}

// kCorruption names each damaged member, the damage, and the sound members.
Status FindDamage(const std::vector<Member>& members) {
  std::string text;
  for (const Member& member : members) {
    std::vector<std::string> damage = member.status.damage;
    if (!member.status.log_error.empty()) damage.push_back(member.status.log_error);
    for (const std::string& each : damage)
      text += Text(text.empty() ? "" : "; ", member.name, " is damaged: ", each);
  }
  if (text.empty()) return {};
  const std::string sound = Names(members, true);
  return Corruption(Text(text, "; ",
                         sound.empty() ? "no member is sound as a whole" : sound + " sound",
                         "; hyperloopctl verify --repair mends what any replica has sound"));
}

Status CompareGroups(const std::vector<Member>& members) {
  const Member& first = members.front();
  for (const Member& member : members) {
    if (member.status.group == first.status.group) continue;
    return Corruption(Text(member.name, " belongs to group ", member.status.group, ", ", first.name,
                           " to group ", first.status.group));
  }
  return {};
}

// kCorruption: two members, each of which has acknowledged records that the other lacks.
Status CompareHistories(const std::vector<Member>& members) {
  std::vector<LogSeen> logs;
  for (const Member& each : members) logs.emplace_back(each.name, each.status, *each.view);
  for (size_t i = 0; i < logs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      HL_ASSIGN_OR_RETURN(const bool differ, logs[i].IsAnotherHistoryThan(logs[j]));
      if (!differ) continue;
      return Corruption(Text(
          "start the members on the pools that they had; if these are lost, hyperloopctl export "
          "writes both histories before you give one up: ",
          members[j].name, " and ", members[i].name,
          " have two histories of the group, each with records that the other lacks (their logs "
          "end "
          "at sequence ",
          members[j].status.last_seq, " and ", members[i].status.last_seq, ", of epochs ",
          members[j].status.last_epoch, " and ", members[i].status.last_epoch, ")"));
    }
  }
  return {};
}

// kCorruption: members of different epochs, or logs that end at different records.
Status CompareLogs(const std::vector<Member>& members) {
  const Member* first = &members.front();
  for (const Member& member : members) {
    if (member.replica && first->replica &&
        member.status.installed_epoch != first->status.installed_epoch) {
      return Corruption(Text("regions differ: ", first->name, " is installed under epoch ",
                             first->status.installed_epoch, ", ", member.name, " under epoch ",
                             member.status.installed_epoch,
                             ", as after an opening that was cut short", kRemedy));
    }
    if (member.status.last_epoch != first->status.last_epoch ||
        member.status.last_seq != first->status.last_seq) {
      return Corruption(Text("regions differ: the log of ", first->name, " ends at sequence ",
                             first->status.last_seq, " of epoch ", first->status.last_epoch,
                             ", that of ", member.name, " at ", member.status.last_seq,
                             " of epoch ", member.status.last_epoch, kRemedy));
    }
  }
  return {};
}

Status ComparePiece(const std::vector<Member>& members, uint64_t at, uint64_t size) {
  std::vector<std::vector<std::byte>> pieces(members.size(), std::vector<std::byte>(size));
  HL_RETURN_IF_ERROR(
      AllAtOnce(members.size(), [&](size_t i) { return members[i].view->Read(at, pieces[i]); }));
  const std::vector<std::byte>& expected = pieces.front();
  for (size_t i = 1; i < members.size(); ++i) {
    const std::vector<std::byte>& found = pieces[i];
    const auto [a, b] = std::mismatch(expected.begin(), expected.end(), found.begin());
    if (a == expected.end()) continue;
    char bytes[32];
    std::snprintf(bytes, sizeof bytes, "0x%02x and 0x%02x", std::to_integer<unsigned>(*a),
                  std::to_integer<unsigned>(*b));
    return Corruption(
        Text("regions differ, first at offset ", at + static_cast<uint64_t>(a - expected.begin()),
             ": ", members.front().name, " and ", members[i].name, " have ", bytes,
             "; every member's files are sound, so it is in bytes that no file has", kRemedy));
  }
  return {};
}

// Compares every member's region with the first one's, in the bytes that the first one has in use.
// kCorruption names the first byte that differs.
Status CompareBytes(const std::vector<Member>& members) {
  constexpr uint64_t kPiece = 1 << 20;
  const uint64_t size = members.front().view->region_size();
  for (const Member& member : members) {
    if (member.view->region_size() != size) {
      return Corruption(member.name + " has a region of " +
                        std::to_string(member.view->region_size()) + " B, " + members.front().name +
                        " one of " + std::to_string(size) + " B");
    }
  }
  for (const Range& range : members.front().status.in_use) {
    for (uint64_t at = 0; at < range.size; at += kPiece) {
      HL_RETURN_IF_ERROR(
          ComparePiece(members, range.offset + at, std::min(kPiece, range.size - at)));
    }
  }
  return {};
}

uint64_t BytesInUse(const Member& member) {
  uint64_t bytes = 0;
  for (const Range& range : member.status.in_use) bytes += range.size;
  return bytes;
}

Status Compare(const std::vector<Member>& members) {
  HL_RETURN_IF_ERROR(FindDamage(members));
  HL_RETURN_IF_ERROR(CompareGroups(members));
  HL_RETURN_IF_ERROR(CompareHistories(members));
  HL_RETURN_IF_ERROR(CompareLogs(members));
  return CompareBytes(members);
}

// Takes the group as its own database would, which mends everything that some member has sound and
// makes all members equal, and releases it. The group stays bound to its database and directory.
Status Repair(const Nodes& nodes, std::vector<Member> members) {
  std::optional<NodeStatus> known;
  for (Member& member : members) {
    if (member.status.log_error.empty() && !member.status.database.empty() &&
        (!known.has_value() || member.status.last_seq > known->last_seq))
      known = std::move(member.status);
  }
  members.clear();  // each has its pool or link, and the taking needs the primary's pool
  if (!known.has_value()) {
    return Corruption(
        "no member says which database the group holds, so that nothing can be repaired: each has "
        "a damaged log or table, or holds none");
  }
  StoreOptions options;
  HL_RETURN_IF_ERROR(ParseStoreUri(nodes.uri(), &options));
  options.takeover = false;
  options.restore = false;
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, Store::Open(options, nullptr));
  TakeRequest request;
  request.directory = known->directory;
  request.directory_empty = false;
  request.pairing = {known->group, known->database};
  TakeResult taken;
  HL_RETURN_IF_ERROR(store->Take(request, &taken));
  return store->Close();
}

constexpr std::chrono::seconds kBulkPatience{30};

// Reads a file that the replica holds. The result says what is wrong with it; empty: nothing.
Result<std::string> CheckFile(control::ControlClient& replica, const WholeFile& file) {
  FileChecksum checksum;
  for (uint64_t at = 0; at < file.size;) {
    control::GetFileRequestT request;
    request.file = std::make_unique<control::StoredFileT>();
    request.file->name = file.name;
    request.file->size = file.size;
    request.file->checksum = file.checksum;
    request.offset = at;
    request.length = control::kMaxBulkBytes;
    const auto got = replica.Call<control::GetFileReplyT>(std::move(request), kBulkPatience);
    if (got.status().code() == Code::kNotFound) return std::string("is gone");
    if (got.status().code() == Code::kCorruption) return Text("fails: ", got.status().message());
    HL_RETURN_IF_ERROR(got.status());
    if (got->bytes.empty()) return Text("ends at ", at, " of ", file.size, " B");
    checksum.Add({reinterpret_cast<const char*>(got->bytes.data()), got->bytes.size()});
    at += got->bytes.size();
  }
  return std::string(checksum.value() == file.checksum ? "" : "fails its checksum");
}

// What is wrong with the replica's SST and blob files, and the like; empty: nothing. Adds to
// `*bytes` how many were read.
Result<std::string> CheckFilesOf(control::ControlClient& replica, const Member& member,
                                 uint64_t* bytes) {
  HL_ASSIGN_OR_RETURN(
      const control::ListFilesReplyT stored,
      replica.Call<control::ListFilesReplyT>(control::ListFilesRequestT{}, kBulkPatience));
  std::set<WholeFile> held;
  for (const auto& each : stored.files)
    if (each->finished) held.insert({each->name, each->size, each->checksum});
  std::string text;
  for (const FileInfo& info : member.status.files) {
    if (info.lane != Lane::kBulk) continue;
    const WholeFile file{info.name, info.size, info.checksum};
    std::string wrong = "is not there";
    if (const WholeFile* const as_held = FindHeld(held, file); as_held != nullptr) {
      HL_ASSIGN_OR_RETURN(wrong, CheckFile(replica, *as_held));
      *bytes += file.size;
    }
    if (wrong.empty()) continue;
    text += Text(text.empty() ? "" : "; ", member.name, ": the file \"", file.name, "\" ", wrong);
  }
  return text;
}

// kCorruption names the whole files of replicas that are damaged or not there. Sets `*bytes` to how
// many were read.
Status CheckFiles(const Nodes& nodes, const std::vector<Member>& members, uint64_t* bytes) {
  const size_t count = nodes.replicas().size();
  std::vector<uint64_t> read(count);
  const std::vector<Result<std::string>> checked =
      AtOnce(count, [&](size_t i) -> Result<std::string> {
        HL_ASSIGN_OR_RETURN(const auto replica, nodes.BulkLane(nodes.replicas()[i]));
        return CheckFilesOf(*replica, members[i], &read[i]);
      });
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    HL_RETURN_IF_ERROR(checked[i].status());
    *bytes += read[i];
    if (!checked[i]->empty()) text += (text.empty() ? "" : "; ") + *checked[i];
  }
  if (text.empty()) return {};
  return Corruption(Text(text,
                         ". Move a damaged file out of its replica's directory of files (--files "
                         "of hyperloop-replica); while the database is open, its primary sends "
                         "each file that a replica lacks"));
}

Status Verify(const Where& where, bool repair, bool with_files, std::string* report) {
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(where));
  std::string left_out;
  HL_ASSIGN_OR_RETURN(std::vector<Member> members, CheckAll(nodes, &left_out));
  Status status = Compare(members);
  if (!status.ok() && repair) {
    HL_RETURN_IF_ERROR(CompareHistories(members));  // somebody has to choose one first
    std::fprintf(stderr, "hyperloopctl: before: %s\n", status.message().c_str());
    HL_RETURN_IF_ERROR(Repair(nodes, std::move(members)));
    left_out.clear();
    HL_ASSIGN_OR_RETURN(members, CheckAll(nodes, &left_out));
    status = Compare(members);
    *report = "repaired; ";
  }
  HL_RETURN_IF_ERROR(status);
  *report += Text(Names(members, true), ": ", BytesInUse(members.front()), " B in use are equal, ",
                  members.front().status.files.size(), " files sound", left_out);
  if (!with_files) return {};
  uint64_t bytes = 0;
  HL_RETURN_IF_ERROR(CheckFiles(nodes, members, &bytes));
  *report += Text("; SST and blob files of each replica are sound, ", bytes, " B in all");
  return {};
}

}  // namespace

void AddVerify(CLI::App& app, Action* chosen) {
  auto where = std::make_shared<Where>();
  auto repair = std::make_shared<bool>(false);
  auto files = std::make_shared<bool>(false);
  CLI::App* verify = app.add_subcommand(
      "verify",
      "check the checksums of what each replica and the primary's pool hold, and that their "
      "regions are equal in every byte in use; names member, extent and file of damage");
  auto deep = std::make_shared<std::string>();
  CLI::Option_group* const group = AddWhere(verify, where.get());
  group
      ->add_option("--deep", *deep,
                   "instead of a group: a snapshot, or another directory with a database, which "
                   "RocksDB opens read-only and reads through, every key and every checksum")
      ->check(CLI::Validator([](const std::string& to) { return to.empty() ? "no name" : ""; }, ""))
      ->type_name("DIR");
  verify->add_flag("--repair", *repair,
                   "mend damage from members that are sound there, and make all members equal; all "
                   "replicas must run, and no primary");
  verify->add_flag(
      "--files", *files,
      "read all SST and blob files of every replica, too, and check them; all replicas "
      "must run");
  verify->callback([=] {
    if (!deep->empty() && (*repair || *files))
      throw CLI::ValidationError("--deep", "excludes --repair and --files, which are of a group");
    *chosen = [=] {
      if (!deep->empty()) return Fail(BecomeDirectoryProgram(DirectoryCall::Deep{}, *deep, *where));
      std::string report;
      const Status status = Verify(*where, *repair, *files, &report);
      if (!status.ok()) return Fail(status);
      std::printf("%s\n", report.c_str());
      return static_cast<int>(kExitOk);
    };
  });
}

}  // namespace hyperloop::ctl
