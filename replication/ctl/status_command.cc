// hyperloopctl status
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/heartbeat_word.h"
#include "common/printable.h"
#include "ctl/command.h"
#include "ctl/daemons.h"
#include "ctl/nodes.h"
#include "ctl/reading.h"
#include "ctl/repeat.h"
#include "ctl/standing.h"
#include "follow/followed_directory.h"

namespace hyperloop::ctl {
namespace {

struct Look {
  const NodePlace* place = nullptr;
  Status error;  // why the rest is empty
  NodeStatus status;
  bool owner_lives = false;

  // Its owner is writing the region, so what is in it is not damage.
  bool filling() const { return owner_lives && status.sealed_epoch > status.installed_epoch; }
};

// Reads every replica once, all at the same time.
std::vector<Look> LookAtAll(Nodes& nodes) {
  std::vector<Result<OwnedStatus>> read = ReadOwnedAtOnce(
      nodes.ViewAll(), [&](size_t i) { return nodes.replicas()[i].state != ProcessState::kDead; });
  std::vector<Look> looks;
  for (size_t i = 0; i < read.size(); ++i) {
    Look& look = looks.emplace_back();
    look.place = &nodes.replicas()[i];
    look.error = read[i].status();
    if (!read[i].ok()) continue;
    look.status = std::move(read[i]->status);
    look.owner_lives = read[i]->owner_lives;
  }
  return looks;
}

nlohmann::ordered_json FilesToJson(const std::vector<FileInfo>& files) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const FileInfo& file : files) {
    json.push_back({{"name", file.name},
                    {"lane", file.lane == Lane::kLog ? "log" : "bulk"},
                    {"size", file.size}});
  }
  return json;
}

// "silent": only the replica itself could say more, and it does not answer.
std::string ProcessOf(const NodePlace& place) {
  return std::string(place.silent.ok() ? ProcessStateName(place.state) : "silent");
}

nlohmann::ordered_json ToJson(const Look& look, const Standing& standing) {
  const NodeStatus& status = look.status;
  nlohmann::ordered_json json;
  json["replica"] = look.place->name;
  json["listen"] = look.place->listen;
  json["process"] = ProcessOf(*look.place);
  json["error"] = look.error.ok() ? "" : look.error.message();
  if (!look.error.ok()) return json;
  json["node"] = status.node;
  json["group"] = status.group;
  json["media"] = status.media;
  json["region_size"] = status.region_size;
  json["epoch"] = status.sealed_epoch;
  json["installed_epoch"] = status.installed_epoch;
  json["owner"] = status.owner;
  json["owner_name"] = status.owner_name;
  json["owner_lives"] = look.owner_lives;
  json["released"] = status.released;
  json["heartbeat"] = status.heartbeat;
  json["heartbeat_time"] = HeartbeatTime(status.heartbeat);
  json["chain"] = status.replicas;
  json["left_out"] = status.absent;
  json["branch_epoch"] = status.branch_epoch;
  json["left_out_why"] = status.absences;
  json["file_damage"] = status.file_damage;
  json["file_refusal"] = status.file_refusal;
  json["primary_file_damage"] = status.owner_damage;
  json["datapath"] = status.datapath;
  json["awaits_opening"] = status.awaits_opening;
  json["region_filling"] = look.filling();
  json["files_lacking"] = nullptr;
  json["files_lacking_bytes"] = nullptr;
  if (standing.lack.ok()) {
    json["files_lacking"] = standing.lack->files;
    json["files_lacking_bytes"] = standing.lack->bytes;
  }
  json["formatted"] = status.formatted;
  if (!status.formatted) return json;
  json["database"] = status.database;
  json["directory"] = status.directory;
  json["lock_word"] = status.lock_word;
  json["sequence"] = status.last_seq;
  json["sequence_epoch"] = status.last_epoch;
  json["acked_sequence"] = status.acked_seq;
  json["head_sequence"] = status.head_seq;
  json["head"] = status.head_position;
  json["tail"] = status.tail_position;
  json["journal_size"] = status.journal_size;
  json["extents"] = status.extents;
  json["extents_used"] = status.extents_used;
  json["table_capacity"] = status.table_capacity;
  json["recorded_epoch"] = status.configuration.epoch;
  json["recorded_chain"] = status.configuration.replicas;
  json["log_error"] = look.filling() ? "" : status.log_error;
  json["damage"] = status.damage;
  json["files"] = FilesToJson(status.files);
  return json;
}

bool SameFiles(const std::vector<FileInfo>& a, const std::vector<FileInfo>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const FileInfo& x, const FileInfo& y) {
                      return x.name == y.name && x.size == y.size && x.lane == y.lane;
                    });
}

std::string Shown(const std::string& text) { return Printable(text, 4096); }

void PrintFiles(const Look& look) {
  for (const FileInfo& file : look.status.files) {
    std::printf("    %12llu  %-5s  %s\n", static_cast<unsigned long long>(file.size),
                file.lane == Lane::kLog ? "log" : "bulk", Shown(file.name).c_str());
  }
}

// What keeps a replica from being a whole one, though nothing of it is damaged.
void PrintFilling(const Look& look, const Standing& standing) {
  if (look.filling()) std::printf("  BEING FILLED: the primary is writing the region\n");
  const std::string lack = LackText(standing);
  if (lack.empty()) return;
  const char* const mark = look.owner_lives ? "BEING FILLED" : "NOT FILLED";
  std::printf("  %s: %s\n", standing.lack.ok() ? mark : "UNKNOWN", Shown(lack).c_str());
}

void PrintText(const Look& look, const Standing& standing, const Look& first) {
  const NodeStatus& status = look.status;
  // Texts of a damaged or foreign replica may hold terminal control characters.
  std::printf("%s  %s  %s", look.place->name.c_str(), look.place->listen.c_str(),
              ProcessOf(*look.place).c_str());
  if (!look.error.ok()) {
    std::printf("\n  cannot be looked at: %s\n", Shown(look.error.message()).c_str());
    return;
  }
  std::printf("  media=%s  region %s\n", status.media.c_str(),
              FormatSize(status.region_size).c_str());
  if (status.sealed_epoch == 0) {
    std::printf("  never taken by a primary\n");
    return;
  }
  const std::string silent =
      "no heartbeat since " + HeartbeatTime(status.heartbeat) + ": dead, stopped or cut off";
  const std::string datapath =
      status.datapath.empty() ? "" : ", datapath " + Shown(status.datapath);
  std::printf("  epoch %llu (installed %llu), owner %s: %s%s\n",
              static_cast<unsigned long long>(status.sealed_epoch),
              static_cast<unsigned long long>(status.installed_epoch),
              Shown(status.owner_name.empty() ? status.owner : status.owner_name).c_str(),
              look.owner_lives  ? "alive"
              : status.released ? "closed"
                                : silent.c_str(),
              datapath.c_str());
  if (status.awaits_opening)
    std::printf("  NOT OPENED: it was promoted or adopted, and no database was opened since\n");
  PrintFilling(look, standing);
  if (!status.owner_damage.empty())
    std::printf("  DAMAGED: %s\n", Shown(status.owner_damage).c_str());
  for (size_t i = 0; i < status.absent.size(); ++i) {
    const std::string& why = status.absences[i];
    std::printf("  SHRUNKEN: goes on without %s until it is back%s\n",
                Shown(status.absent[i]).c_str(),
                why.empty() ? "" : ("; left out " + Shown(why)).c_str());
  }
  if (status.branch_epoch != 0) {
    std::printf(
        "  BRANCH: replicas were given up by force at epoch %llu; what they hold never "
        "joins it\n",
        static_cast<unsigned long long>(status.branch_epoch));
  }
  if (!status.file_damage.empty())
    std::printf("  DAMAGED: %s\n", Shown(status.file_damage).c_str());
  if (!status.file_refusal.empty())
    std::printf("  STUCK: takes no files of the database %s\n", Shown(status.file_refusal).c_str());
  if (!status.formatted) {
    std::printf("  holds no database\n");
    return;
  }
  std::printf(
      "  sequence %llu, acknowledged at least %llu, executed %llu; log bytes %llu to %llu, ring "
      "%s\n",
      static_cast<unsigned long long>(status.last_seq),
      static_cast<unsigned long long>(status.acked_seq),
      static_cast<unsigned long long>(status.head_seq),
      static_cast<unsigned long long>(status.head_position),
      static_cast<unsigned long long>(status.tail_position),
      FormatSize(status.journal_size).c_str());
  std::printf("  %zu files of at most %llu, %llu of %llu extents; database %s\n",
              status.files.size(), static_cast<unsigned long long>(status.table_capacity),
              static_cast<unsigned long long>(status.extents_used),
              static_cast<unsigned long long>(status.extents), Shown(status.directory).c_str());
  if (!status.log_error.empty() && !look.filling())
    std::printf("  DAMAGED: %s\n", Shown(status.log_error).c_str());
  for (const std::string& damage : status.damage)
    std::printf("  DAMAGED: %s\n", Shown(damage).c_str());
  if (&look != &first && SameFiles(status.files, first.status.files)) {
    std::printf("  the same files as %s\n", first.place->name.c_str());
  } else {
    PrintFiles(look);
  }
}

// Processors on which an RNIC daemon of the group is not alone: a line for each.
std::vector<std::string> SharedProcessors(const Nodes& nodes) {
  const std::vector<pid_t> own = nodes.Daemons();
  std::vector<std::string> lines;
  for (const auto& [cpu, pids] : DaemonsByProcessor()) {
    const bool ours = std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
      return std::find(own.begin(), own.end(), pid) != own.end();
    });
    if (ours && pids.size() > 1) lines.push_back(SharedProcessor(cpu, pids));
  }
  return lines;
}

struct Follower {
  std::string directory;
  Status error;  // why the rest is empty
  FollowedDirectory::Said said;
  double age = -1;  // seconds; negative: nobody has vouched for what it shows
  // Records that are acknowledged and that it does not show; nothing: no replica says.
  std::optional<uint64_t> behind;
};

// `newest`: null if no replica could be read.
Follower LookAtFollower(const std::string& directory, const NodeStatus* newest) {
  Follower follower;
  follower.directory = directory;
  Result<FollowedDirectory::Said> said = FollowedDirectory::Read(directory);
  if (!said.ok()) {
    follower.error = said.status();
  } else if (newest != nullptr && said->origin.group != newest->group) {
    follower.error =
        InvalidArgument("name a directory of this group: it shows the group " + said->origin.group);
  } else if (newest != nullptr && (said->origin.branch_epoch != newest->branch_epoch ||
                                   said->origin.branch_owner != newest->branch_owner)) {
    follower.error = InvalidArgument(
        "remove it and follow anew: it shows what the group held before replicas were given up by "
        "force");
  } else {
    follower.said = *std::move(said);
    if (const auto& as_of = follower.said.as_of) {
      const std::chrono::duration<double> age = std::chrono::system_clock::now() - *as_of;
      follower.age = std::max(age.count(), 0.0);
    }
    if (newest != nullptr)
      follower.behind = std::max(newest->acked_seq, follower.said.record) - follower.said.record;
  }
  return follower;
}

nlohmann::ordered_json ToJson(const Follower& follower) {
  nlohmann::ordered_json json{{"directory", follower.directory},
                              {"error", follower.error.message()}};
  if (!follower.error.ok()) return json;
  json["record"] = follower.said.record;
  json["records_behind"] = nullptr;
  if (follower.behind) json["records_behind"] = *follower.behind;
  json["age_seconds"] = nullptr;
  if (follower.age >= 0) json["age_seconds"] = follower.age;
  return json;
}

void PrintText(const Follower& follower) {
  std::printf("follower %s\n  ", Shown(follower.directory).c_str());
  if (!follower.error.ok()) {
    std::printf("cannot be looked at: %s\n", Shown(follower.error.message()).c_str());
    return;
  }
  std::printf("shows record %llu, ", static_cast<unsigned long long>(follower.said.record));
  if (follower.behind) {
    std::printf("%llu behind what is acknowledged; ",
                static_cast<unsigned long long>(*follower.behind));
  } else {
    std::printf("UNKNOWN how far behind; ");
  }
  if (follower.age < 0) {
    std::printf("NOT VOUCHED FOR: how old that is nobody knows yet\n");
  } else {
    std::printf("all that was acknowledged until %.2f s ago\n", follower.age);
  }
}

struct StatusOptions {
  Where where;
  std::vector<std::string> followed;  // directories
  bool as_json = false;
  double watch = 0;  // seconds between two looks; 0: there is one
};

int Run(const StatusOptions& options) {
  const bool as_json = options.as_json;
  Result<Nodes> nodes = Nodes::Find(options.where);
  if (!nodes.ok()) return Fail(nodes.status());
  const std::vector<Look> looks = LookAtAll(*nodes);
  std::vector<const NodeStatus*> statuses;
  for (const Look& look : looks) statuses.push_back(look.error.ok() ? &look.status : nullptr);
  const std::vector<Standing> standings = StandingsOf(*nodes, statuses);
  bool all = true;
  nlohmann::ordered_json json{{"replicas", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < looks.size(); ++i) {
    const Look& look = looks[i];
    const bool sound = look.status.log_error.empty() || look.filling();
    all = all && look.error.ok() && sound && look.status.damage.empty();
    if (as_json) {
      json["replicas"].push_back(ToJson(look, standings[i]));
    } else {
      PrintText(look, standings[i], looks.front());
    }
  }
  json["followers"] = nlohmann::ordered_json::array();
  for (const std::string& directory : options.followed) {
    const Follower follower = LookAtFollower(directory, NewestOf(statuses));
    all = all && follower.error.ok();
    if (as_json) {
      json["followers"].push_back(ToJson(follower));
    } else {
      PrintText(follower);
    }
  }
  const std::string risk = NextFailureOf(nodes->uri(), NewestOf(statuses), standings);
  json["next_failure_stops_writes"] = risk;
  if (!as_json && !risk.empty()) std::printf("the next failure stops writes: %s\n", risk.c_str());
  const std::vector<std::string> shared = SharedProcessors(*nodes);
  json["shared_processors"] = shared;
  for (const std::string& line : shared)
    if (!as_json) std::printf("SLOW: %s\n", line.c_str());
  if (as_json) {
    const int indent = options.watch > 0 ? -1 : 2;
    using Handler = nlohmann::ordered_json::error_handler_t;
    std::printf("%s\n", json.dump(indent, ' ', false, Handler::replace).c_str());
  }
  return all ? kExitOk : kExitFailure;
}

int RunOrWatch(const StatusOptions& options) {
  if (options.watch == 0) return Run(options);
  return Repeat(std::chrono::duration<double>(options.watch), /*give_up=*/false, [&] {
    if (!options.as_json) std::printf("%s\n", TimeNow().c_str());
    return Run(options);
  });
}

}  // namespace

void AddStatus(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* status = app.add_subcommand(
      "status",
      "show each replica's epoch, owner, log and files, which disturbs nobody; exit status 1 if a "
      "replica or a follower cannot be read, or a region is damaged");
  AddWhere(status, &options->where);
  status
      ->add_option("--followed", options->followed,
                   "also show how old this directory of hyperloopctl follow is; may be repeated")
      ->allow_extra_args(false)
      ->type_name("DIR");
  status->add_flag("--json", options->as_json, "as one JSON object; with --watch one on each line");
  status
      ->add_option("--watch", options->watch,
                   "look again every SECONDS, 2 if that is left out, until Ctrl-C; exit status 0 "
                   "then")
      ->expected(0, 1)
      ->default_str("2")
      ->check(CLI::Range(kShortestInterval, kLongestInterval))
      ->type_name("[SECONDS]");
  status->callback([=] { *chosen = [=] { return RunOrWatch(*options); }; });
}

}  // namespace hyperloop::ctl
