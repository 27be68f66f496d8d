// hyperloopctl follow
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
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
#include "ctl/follow_metrics.h"
#include "ctl/followed_replica.h"
#include "ctl/repeat.h"
#include "follow/replica_follower.h"
#include "follow/vouching.h"
#include "hyperloop/command_line/command_line.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/text.h"
#include "hyperloop/metrics/server.h"
#include "options/size_option.h"

namespace hyperloop::ctl {
namespace {

struct FollowOptions {
  FollowedReplica replica;
  std::string to;
  uint32_t retain = 60;  // seconds
  uint64_t retain_bytes = uint64_t{4} << 30;
  metrics::ServerOptions metrics;
};

constexpr std::chrono::milliseconds kMostSleep{100};  // until a signal is seen
constexpr std::chrono::seconds kTellOfLag{5};

volatile std::sig_atomic_t ended = 0;

// "" while what is shown is known to be new enough.
std::string LagText(const ReplicaFollower& follower, ReplicaFollower::Time now) {
  const auto old = [&](const std::optional<ReplicaFollower::Time>& moment) {
    return !moment.has_value() || now - *moment >= kTellOfLag;
  };
  if (!old(follower.as_of())) return "";
  if (old(follower.whole_as_of())) return "; it is behind the replica by some seconds";
  return "; nobody vouches for the replica: fewer than a majority of the group's replicas can be "
         "asked, or the group goes on without this one, so what is shown may be old";
}

std::string TextOf(const ReplicaFollower& follower, LogFollower::Progress progress,
                   const std::string& lag) {
  if (progress == LogFollower::Progress::kAwaitsPrimary)
    return follower.shown() ? "a primary is taking the group; what is shown stays"
                            : "waits for a primary that takes the group";
  if (follower.behind()) return "waits until the replica holds all that is shown";
  if (follower.waits_long())
    return Text("waits for ", *follower.missing(), ", which the replica does not hold yet");
  if (!follower.shown()) return {};  // until the next heartbeat
  return Text("follows epoch ", follower.epoch(), lag);
}

// Says something once, until it says something else.
class Teller {
 public:
  void Say(const std::string& text) {
    if (text.empty() || text == said_) return;
    SayNow(text);
    said_ = text;
  }
  void SayNow(const std::string& text) const {
    std::printf("%s  %s\n", TimeNow().c_str(), Printable(text, 4096).c_str());
    std::fflush(stdout);
  }

 private:
  std::string said_;
};

// Whether trying again cannot help.
bool IsFinal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kAlreadyExists ||
         status.code() == Code::kPermissionDenied;
}

// Serves the page of metrics, if that is wanted. Once a second the thread that follows makes it.
class ShownMetrics {
 public:
  explicit ShownMetrics(const FollowOptions& options)
      : page_(options.to), options_(options.metrics), log_(StderrLog("hyperloopctl")) {}

  Status Start() {
    if (options_.address.empty()) return {};
    HL_ASSIGN_OR_RETURN(server_, metrics::Server::Start(
                                     options_, [this] { return page_.Get(); }, *log_));
    return {};
  }
  void Sample(const ReplicaFollower& follower, bool looked, ReplicaFollower::Time now) {
    if (server_ == nullptr || now < next_) return;
    page_.Sample(follower, looked, now);
    next_ = now + kSample;
  }

 private:
  static constexpr std::chrono::seconds kSample{1};

  FollowMetrics page_;
  const metrics::ServerOptions options_;
  const std::shared_ptr<Log> log_;
  std::unique_ptr<metrics::Server> server_;  // ends before what it shows
  ReplicaFollower::Time next_{};
};

void EndAtSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { ended = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

Status Follow(const FollowOptions& options) {
  EndAtSignals();
  ShownMetrics shown(options);
  HL_RETURN_IF_ERROR(shown.Start());
  HL_ASSIGN_OR_RETURN(std::vector<Vouching::Witness> witnesses, WitnessesOf(options.replica.where));
  const Vouching vouching(std::move(witnesses));
  ReplicaFollower follower(
      [&] { return Connect(options.replica); },
      [&](std::span<const std::string> members, uint64_t epoch, ReplicaFollower::Time since) {
        return vouching.Confirms(members, epoch, since);
      },
      options.to, {std::chrono::seconds(options.retain), options.retain_bytes});
  Teller teller;
  bool first = true, told_of_room = false;
  std::optional<ReplicaFollower::Time> began;  // to show something
  while (ended == 0) {
    const auto now = std::chrono::steady_clock::now();
    const Result<LogFollower::Progress> progress = follower.Look(now);
    if (progress.ok()) {
      if (!began.has_value() && follower.shown()) began = now;
      const bool settled = began.has_value() && now - *began >= kTellOfLag;
      teller.Say(TextOf(follower, *progress, settled ? LagText(follower, now) : ""));
      if (follower.gone_early() != 0 && !std::exchange(told_of_room, true))
        teller.SayNow(
            "dropped files have more than --retain-bytes; their names go before --retain");
      first = false;
    } else if (first || IsFinal(progress.status())) {
      return progress.status();
    } else {
      teller.Say(Text(progress.status().message(), "; what is shown stays, and it is tried again"));
    }
    shown.Sample(follower, progress.ok(), now);
    for (auto left = follower.pause(); ended == 0 && left.count() > 0; left -= kMostSleep)
      std::this_thread::sleep_for(std::min(left, kMostSleep));
  }
  return {};
}

}  // namespace

void AddFollow(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<FollowOptions>();
  CLI::App* follow = app.add_subcommand(
      "follow",
      "keep a directory that grows as the group is written, from which stock RocksDB reads (as a "
      "secondary, or read-only); shows nothing that is not acknowledged; runs until SIGTERM");
  AddFollowedReplica(follow, &options->replica);
  follow->add_option("--to", options->to, "the directory: new, empty, or one that follow made")
      ->required()
      ->type_name("DIR");
  follow
      ->add_option("--retain", options->retain,
                   "how many seconds a file that the group dropped keeps its name, for readers "
                   "that are about to open it")
      ->check(CLI::Range(0u, 86400u))
      ->type_name("SECONDS")
      ->capture_default_str();
  follow
      ->add_option("--retain-bytes", options->retain_bytes,
                   "at most how many bytes (K, M, G) such files have together; the ones that were "
                   "dropped first go earlier")
      ->transform(SizeFrom(0, UINT64_MAX))
      ->type_name("BYTES")
      ->default_str("4G");
  AddMetrics(*follow, &options->metrics);
  follow->callback([=] {
    *chosen = [=] {
      const Status status = Follow(*options);
      return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
    };
  });
}

}  // namespace hyperloop::ctl
