// ServiceRunner: starts the service so that its opening of the database takes the group, and ends
// it: in order, and by force if that takes too long.
//
// The service runs under hyperloopctl exec, with its directory bound to the group, and with a tag
// in its environment, which the group's replicas show in the name of their owner. Each start has
// another tag. One thread uses it, which lives as long as the program.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/notify_socket.h"
#include "agent/service_process.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::agent {

// In whose value a child finds its NotifySocket.
inline constexpr char kNotifyVariable[] = "NOTIFY_SOCKET";

class ServiceRunner {
 public:
  using Time = BootClock::time_point;
  struct Options {
    std::string node;
    std::string db;
    std::vector<std::string> command;
    std::chrono::milliseconds stop_timeout{};
  };
  // Refuses what cannot be started: hyperloopctl is not found, or the command, or the plugin cannot
  // be preloaded into it (ctl/preload.h).
  static Result<std::unique_ptr<ServiceRunner>> Make(Options options);

  // The service does not run. `store`: of the group, as a primary on this node opens it. `own`: the
  // group is still as the last service of this agent left it that was ready, so that the directory
  // is the group's already, and need not be read.
  Status Start(const StoreOptions& store, bool own);
  // Asks the service to end, and kills it stop_timeout later. Does nothing if it does not run, or
  // was asked already.
  void Stop(Time now);
  void Kill();

  // Of hyperloopctl standby for this service. `replica_files`: of a replica on this node; or empty.
  std::vector<std::string> StandbyCommand(const StoreOptions& store,
                                          const std::string& replica_files) const;

  bool runs() const { return process_ != nullptr; }
  pid_t pid() const { return process_ == nullptr ? 0 : process_->pid(); }
  // Whether the owner of this name (NodeStatus::owner_name) is the service, or was started by it.
  bool Owns(const std::string& owner_name) const;
  // Whether the service has said since its start that it is ready (sd_notify, READY=1).
  bool notified() const { return notified_; }

  // What to poll for, and at what time to call Look at the latest.
  void AddTo(std::vector<pollfd>* polled) const;
  std::optional<Time> next() const { return kill_at_; }
  // Takes note of what has happened. How the service ended, once it has; nothing else.
  std::optional<std::string> Look(Time now);

 private:
  ServiceRunner(Options options, std::string program);

  const Options options_;
  const std::string program_;  // hyperloopctl
  std::string tag_;
  std::unique_ptr<ServiceProcess> process_;
  std::optional<NotifySocket> notify_;  // of process_, as the following
  bool notified_ = false;
  std::optional<Time> kill_at_;
};

}  // namespace hyperloop::agent
