// ServiceProcess: the service as a child of the agent, in a process group of its own.
//
// No service outlives its agent, however that ends. A watcher, which is another child of the agent,
// is in the service's process group, holds one end of a pipe whose other end only the agent has,
// and kills the group when the agent is gone. The kernel also kills the child itself if the thread
// that started it ends: Start is called by a thread that lives as long as the program. What the
// service starts ends with it, too, unless it leaves the process group, or runs as a user whose
// processes this one may not kill.
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
    int output = -1;  // is its stdout and stderr; −1: they are this process's
  };
  // Starts it with stdin from /dev/null, default signals and no other descriptor than stdout and
  // stderr. The error of execve is returned here. The child has none of this process's other
  // descriptors from the beginning: it holds up no other child whose end shows at a pipe.
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
  // SIGKILL to the child and to the process group.
  void Kill() const;
  // How the child ended, as "exit status 1" or "signal 9"; nothing: it lives. Once it has ended,
  // the rest of its process group is killed. So is all of it once somebody has ended the watcher.
  std::optional<std::string> Reap();

 private:
  explicit ServiceProcess(pid_t pid) : pid_(pid) {}
  Status StartWatcher();
  void ReapAll();

  const pid_t pid_;
  UniqueFd pidfd_;
  pid_t watcher_ = -1;
  UniqueFd lifeline_;  // the watcher waits for its end
  std::optional<std::string> end_;
};

}  // namespace hyperloop::agent
