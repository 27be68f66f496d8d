// StandbyRunner: keeps the service's directory ready while the service does not run here, so that
// its opening has little to bring (hyperloopctl standby). One thread uses it, which lives as long
// as the program.
#pragma once

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/notify_socket.h"
#include "agent/service_process.h"
#include "hyperloop/core/status.h"

namespace hyperloop::agent {

class StandbyRunner {
 public:
  using Time = BootClock::time_point;
  // Has it run by this command, of hyperloopctl standby, whose first word is a path. One that ended
  // by itself a short time ago is not started yet. An error is one of this attempt.
  Status Keep(const std::vector<std::string>& command, Time now);
  // So that it ends in a while by itself, and is not missed.
  void AskToEnd() {
    if (process_ != nullptr && !std::exchange(asked_, true)) process_->Terminate();
  }
  // It does not run, and has the directory no longer, when this returns.
  void End() { process_.reset(); }
  // Takes note of what has happened. How it ended, once it has, unless it was asked to; nothing
  // else.
  std::optional<std::string> Look(Time now);

  // All that the group held some time since it was started last was here.
  bool ready() const { return process_ != nullptr && ready_; }
  void AddTo(std::vector<pollfd>* polled) const;

 private:
  std::vector<std::string> command_;  // the last one
  std::unique_ptr<ServiceProcess> process_;
  std::optional<NotifySocket> notify_;  // of process_, as the following
  bool ready_ = false;
  bool asked_ = false;
  Time next_{};
};

}  // namespace hyperloop::agent
