// ServiceProcess: the service as a child of the agent, in a process group of its own.
//
// The kernel kills the child if the thread that started it ends, so that no service outlives its
// agent: Start is called by a thread that lives as long as the program. What the child itself
// starts stays in its process group, and ends with it, unless it leaves the group.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::agent {

class ServiceProcess {
 public:
  struct Command {
    std::vector<std::string> argv;  // argv[0] is a path
    // Set besides this process's environment, in place of variables of the same names.
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<std::string> without = {};  // variables that it does not get
  };
  // Starts it with stdin from /dev/null, default signals and no other descriptor than stdout and
  // stderr. The error of execve is returned here.
  static Result<std::unique_ptr<ServiceProcess>> Start(const Command& command);
  // Kills what is left of it.
  ~ServiceProcess();
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once the child has ended.
  int ended() const { return pidfd_.get(); }
  // SIGTERM to the child, and SIGCONT, in case somebody has stopped it. For it to end in order.
  void Terminate() const;
  // SIGKILL to the process group.
  void Kill() const;
  // How the child ended, as "exit status 1" or "signal 9"; nothing: it lives. Once it has ended,
  // the rest of its process group is killed.
  std::optional<std::string> Reap();

 private:
  ServiceProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  const pid_t pid_;
  const UniqueFd pidfd_;
  std::optional<std::string> end_;
};

}  // namespace hyperloop::agent
