#include "ctl/daemons.h"

#include "hyperloop/core/rnic_daemons.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {

std::map<int, std::vector<pid_t>> DaemonsByProcessor() {
  std::map<int, std::vector<pid_t>> daemons;
  for (const PinnedDaemon& daemon : PinnedDaemons()) daemons[daemon.cpu].push_back(daemon.pid);
  return daemons;
}

std::string SharedProcessor(int cpu, const std::vector<pid_t>& pids) {
  std::string processes;
  for (const pid_t pid : pids) processes += Text(processes.empty() ? "" : ", ", pid);
  return Text("RNIC daemons share processor ", cpu, " (processes ", processes,
              "), where each delays the operations of the others: start each with a processor "
              "of its own (--cpu)");
}

}  // namespace hyperloop::ctl
