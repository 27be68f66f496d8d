// hyperloopctl snapshot
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "ctl/command.h"
#include "ctl/followed_replica.h"
#include "follow/snapshot.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

struct SnapshotOptions {
  FollowedReplica replica;
  std::string to;
  uint32_t wait = 60;  // seconds
};

Status Judge(const SnapshotOptions& options) {
  HL_ASSIGN_OR_RETURN(const ReplicaFollower::Replica replica, Connect(options.replica));
  HL_ASSIGN_OR_RETURN(const NodeStatus status, replica.view->ReadStatus());
  return JudgeSnapshot(options.to, status, replica.files);
}

// Why a snapshot is not finished yet.
std::string WhyNot(const ReplicaFollower& follower, const Status& looked,
                   ReplicaFollower::Time began) {
  if (!looked.ok()) return looked.message();
  if (follower.missing().has_value())
    return Text("the replica does not hold ", *follower.missing(), " yet");
  if (follower.behind())
    return "the replica holds less than was built before; remove that, or name another replica";
  if (!follower.whole_as_of().has_value()) return "a primary is taking the group, or none has";
  if (*follower.whole_as_of() < began)
    return "what is shown is still behind the replica; give it more --wait";
  return "nobody vouches for the replica: fewer than a majority of the group's replicas can be "
         "asked, or the group goes on without this one; name another one";
}

// Until everything is there that was acknowledged before the call.
Status Build(const SnapshotOptions& options, ReplicaFollower* follower) {
  const auto began = std::chrono::steady_clock::now();
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    const Result<LogFollower::Progress> progress = follower->Look(now);
    if (progress.ok() && follower->as_of().has_value() && *follower->as_of() >= began) return {};
    const Code code = progress.status().code();
    if (code == Code::kNoSpace || code == Code::kInvalidArgument || code == Code::kAlreadyExists ||
        code == Code::kPermissionDenied || code == Code::kBusy)
      return progress.status();
    const auto left = began + std::chrono::seconds(options.wait) - now;
    if (left <= left.zero()) {
      return Unavailable(Text("there is no snapshot after ", options.wait,
                              " s: ", WhyNot(*follower, progress.status(), began),
                              ". What was built stays in ", BuildingPlace(options.to),
                              " for the next call"));
    }
    std::this_thread::sleep_for(std::min<ReplicaFollower::Time::duration>(follower->pause(), left));
  }
}

Status Snapshot(const SnapshotOptions& options) {
  HL_RETURN_IF_ERROR(Judge(options));
  HL_ASSIGN_OR_RETURN(std::vector<Vouching::Witness> witnesses, WitnessesOf(options.replica.where));
  const Vouching vouching(std::move(witnesses));
  HL_RETURN_IF_ERROR(ResumeSnapshot(options.to));
  const auto vouch = [&](std::span<const std::string> members, uint64_t epoch,
                         ReplicaFollower::Time since) {
    return vouching.Confirms(members, epoch, since);
  };
  ReplicaFollower follower([&] { return Connect(options.replica); }, vouch,
                           BuildingPlace(options.to), {std::chrono::milliseconds(0)});
  HL_RETURN_IF_ERROR(Build(options, &follower));
  HL_ASSIGN_OR_RETURN(const SnapshotReport report, FinishSnapshot(options.to));
  std::printf(
      "%s holds everything up to record %llu: %llu files, %llu B, of which %llu B are the "
      "replica's own files\n",
      Printable(options.to, 4096).c_str(), static_cast<unsigned long long>(follower.seq()),
      static_cast<unsigned long long>(report.files), static_cast<unsigned long long>(report.bytes),
      static_cast<unsigned long long>(report.linked_bytes));
  return {};
}

}  // namespace

void AddSnapshot(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<SnapshotOptions>();
  CLI::App* snapshot = app.add_subcommand(
      "snapshot",
      "make a checkpoint of the database from a replica on this machine, while the primary serves: "
      "a directory that stock RocksDB opens, with the tables as hard links; goes on where an "
      "earlier call was cut short");
  AddFollowedReplica(snapshot, &options->replica);
  snapshot->add_option("--to", options->to, "the checkpoint: it must not exist yet")
      ->required()
      ->check(CLI::Validator([](const std::string& to) { return to.empty() ? "no name" : ""; }, ""))
      ->type_name("DIR");
  snapshot
      ->add_option("--wait", options->wait,
                   "how many seconds the replica may take until it holds everything that was "
                   "acknowledged before the call")
      ->check(CLI::Range(1u, 604800u))
      ->type_name("SECONDS")
      ->capture_default_str();
  snapshot->callback([=] {
    *chosen = [=] {
      const Status status = Snapshot(*options);
      return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
    };
  });
}

}  // namespace hyperloop::ctl
