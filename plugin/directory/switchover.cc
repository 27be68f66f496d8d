#include "switchover.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "bringer.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/prefetch.h"
#include "local/paths.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using Clock = Released::Clock;

constexpr std::chrono::milliseconds kLookInterval{50};
constexpr std::chrono::seconds kListInterval{1};
// A living primary that waits for a silent replica shows its life only once a second.
constexpr std::chrono::milliseconds kSilent{1500};

class Switchover {
 public:
  Switchover(FileSystem& fs, const SwitchoverRequest& request, Prefetch& prefetch)
      : request_(request),
        prefetch_(prefetch),
        bringer_(fs, prefetch, request.directory, request.replica_files) {}

  Result<Released> Run() {
    HL_ASSIGN_OR_RETURN(holder_, prefetch_.Look());
    HL_RETURN_IF_ERROR(bringer_.CheckDirectoryFits(holder_.group));
    HL_RETURN_IF_ERROR(prefetch_.MakeOwnPool());
    changed_ = Clock::now();
    if (!IsFree()) HL_RETURN_IF_ERROR(WaitForRelease());
    out_.former = holder_.name;
    out_.released = Clock::now();
    return std::move(out_);
  }

 private:
  Status WaitForRelease() {
    if (!holder_.released) out_.held = Clock::now();
    HL_RETURN_IF_ERROR(BringFiles());
    const Clock::time_point until = Clock::now() + request_.wait;
    Clock::time_point list = Clock::now() + kListInterval;
    while (true) {
      std::this_thread::sleep_for(kLookInterval);
      last_look_ = LookAgain();
      if (last_look_.ok() && IsFree()) return Status::Ok();
      const bool known = lives_ || Clock::now() - changed_ >= kSilent;
      if (Clock::now() >= until && known) return Refusal();
      if (Clock::now() < list) continue;
      HL_RETURN_IF_ERROR(BringFiles());
      list = Clock::now() + kListInterval;
    }
  }

  Status LookAgain() {
    HL_ASSIGN_OR_RETURN(Holder now, prefetch_.Look());
    if (!now.released) out_.held = Clock::now();
    const bool same = now.epoch == holder_.epoch;
    if (!same || now.heartbeat != holder_.heartbeat) changed_ = Clock::now();
    lives_ = lives_ || (same && now.heartbeat != holder_.heartbeat);
    holder_ = std::move(now);
    return Status::Ok();
  }

  // Somebody who took the group and gave up before serving left it to a former primary, who takes
  // it back at once if it lives.
  bool IsFree() const {
    return holder_.released && (holder_.served || Clock::now() - changed_ >= kSilent);
  }

  Status Refusal() const {
    const std::string who = Text(holder_.name, " (epoch ", holder_.epoch, ")");
    const std::string kept = Text(". Nothing was taken; what was brought stays in ",
                                  BroughtFiles(request_.directory), " for the next call");
    if (!last_look_.ok())
      return {last_look_.code(),
              Text("waited for ", who, " in vain: ", last_look_.message(), kept)};
    const auto silent = Clock::now() - changed_;
    if (silent < kSilent)
      return Busy(Text(who, " still serves the group; close its database, and call again", kept));
    return Busy(Text(who, " has not closed its database, and has been silent for ",
                     std::chrono::duration_cast<std::chrono::seconds>(silent).count(),
                     " s; if it is dead, hyperloopctl promote takes its place", kept));
  }

  // What cannot be had now is tried again, and in the end the taking fetches it.
  Status BringFiles() {
    const Result<Bringer::Report> report = bringer_.BringAll(holder_.group);
    if (report.status().code() == Code::kNoSpace) return report.status();
    if (!report.ok()) return Warn(report.status());
    if (ready_) return Status::Ok();
    ready_ = true;
    std::printf(
        "ready: %llu tables, blob files and logs are here, %llu of them (%llu B) were brought from "
        "replicas; waiting for %s to close the database\n",
        static_cast<unsigned long long>(report->here),
        static_cast<unsigned long long>(report->brought),
        static_cast<unsigned long long>(report->bytes), holder_.name.c_str());
    std::fflush(stdout);
    return Status::Ok();
  }

  // The same words are written once.
  Status Warn(const Status& status) {
    if (status.message() == warned_) return Status::Ok();
    warned_ = status.message();
    std::fprintf(stderr, "not everything is here yet: %s\n", warned_.c_str());
    return Status::Ok();
  }

  const SwitchoverRequest& request_;
  Prefetch& prefetch_;
  Bringer bringer_;
  Released out_;
  Holder holder_;  // as the last look that was answered saw it
  Status last_look_;
  Clock::time_point changed_;  // when the holder's heartbeat was last seen to move
  bool lives_ = false;         // it was seen to move
  bool ready_ = false;         // the line that says so was written
  std::string warned_;
};

}  // namespace

Result<Released> AwaitRelease(FileSystem& fs, const SwitchoverRequest& request) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<Prefetch> prefetch,
                      Prefetch::Open(request.store, BroughtFiles(request.directory)));
  return Switchover(fs, request, *prefetch).Run();
}

}  // namespace hyperloop::plugin
