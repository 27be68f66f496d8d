// hyperloopctl follow
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/printable.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/repeat.h"
#include "follow/replica_follower.h"
#include "hyperloop/core/text.h"
#include "options/size_option.h"

namespace hyperloop::ctl {
namespace {

struct FollowOptions {
  Where where;
  std::string replica;  // a number, or kSelf
  std::string to, files;
  uint32_t retain = 60;  // seconds
  uint64_t retain_bytes = uint64_t{4} << 30;
};

constexpr char kSelf[] = "self";
constexpr std::chrono::milliseconds kMostSleep{100};  // until a signal is seen

volatile std::sig_atomic_t ended = 0;

// For CLI11: empty, or what is wrong.
std::string CheckReplica(const std::string& text) {
  const bool number = !text.empty() && text.size() <= 3 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return text == kSelf || number ? "" : "'" + text + "' is neither self nor a replica's number";
}

Result<ReplicaFollower::Replica> Connect(const FollowOptions& options) {
  HL_ASSIGN_OR_RETURN(Nodes found, Nodes::Find(options.where));
  const auto nodes = std::make_shared<Nodes>(std::move(found));  // it owns the device
  HL_ASSIGN_OR_RETURN(const NodePlace* place,
                      options.replica == kSelf
                          ? nodes->OwnReplica()
                          : nodes->Replica(static_cast<uint32_t>(std::stoul(options.replica))));
  // The pool of a dead one could be read, but then its process could not start again.
  if (place->state == ProcessState::kDead)
    return Unavailable(Text(place->name, " is dead; start it, or follow another replica"));
  HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, nodes->View(*place));
  const std::string files = options.files.empty() ? place->files : options.files;
  return ReplicaFollower::Replica{nodes, std::move(view), files};
}

std::string TextOf(const ReplicaFollower& follower, LogFollower::Progress progress) {
  if (progress == LogFollower::Progress::kAwaitsPrimary)
    return follower.shown() ? "a primary is taking the group; what is shown stays"
                            : "waits for a primary that takes the group";
  if (follower.behind()) return "waits until the replica holds all that is shown";
  if (follower.waits_long())
    return Text("waits for ", *follower.missing(), ", which the replica does not hold yet");
  if (!follower.shown()) return {};  // until the next heartbeat
  return Text("follows epoch ", follower.epoch());
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

int Run(const FollowOptions& options) {
  struct sigaction action = {};
  action.sa_handler = [](int) { ended = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  Teller teller;
  ReplicaFollower follower([&] { return Connect(options); }, options.to,
                           {std::chrono::seconds(options.retain), options.retain_bytes});
  bool first = true, told_of_room = false;
  while (ended == 0) {
    const auto now = std::chrono::steady_clock::now();
    const Result<LogFollower::Progress> progress = follower.Look(now);
    if (progress.ok()) {
      teller.Say(TextOf(follower, *progress));
      if (follower.gone_early() != 0 && !std::exchange(told_of_room, true))
        teller.SayNow(
            "dropped files have more than --retain-bytes; their names go before --retain");
      first = false;
    } else if (first || IsFinal(progress.status())) {
      return Fail(progress.status());
    } else {
      teller.Say(Text(progress.status().message(), "; what is shown stays, and it is tried again"));
    }
    for (auto left = follower.pause(); ended == 0 && left.count() > 0; left -= kMostSleep)
      std::this_thread::sleep_for(std::min(left, kMostSleep));
  }
  return kExitOk;
}

}  // namespace

void AddFollow(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<FollowOptions>();
  CLI::App* follow = app.add_subcommand(
      "follow",
      "keep a directory that grows as the group is written, from which stock RocksDB reads (as a "
      "secondary, or read-only); shows nothing that is not acknowledged; runs until SIGTERM");
  AddWhere(follow, &options->where);
  follow
      ->add_option("--replica", options->replica,
                   "which replica of the group to read: its number, or self, the one on this "
                   "machine")
      ->required()
      ->check(CLI::Validator(CheckReplica, ""))
      ->type_name("N");
  follow->add_option("--to", options->to, "the directory: new, empty, or one that follow made")
      ->required()
      ->type_name("DIR");
  follow
      ->add_option("--files", options->files,
                   "the replica's directory of whole files, where it is not known otherwise")
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
  follow->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
