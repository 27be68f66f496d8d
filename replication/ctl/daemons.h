// RNIC daemons that share a processor, for status and doctor.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hyperloop::ctl {

// The RNIC daemons of this machine that keep to one processor, by that processor.
std::map<int, std::vector<pid_t>> DaemonsByProcessor();

// What it means for a user that they share it. `pids` has at least two.
std::string SharedProcessor(int cpu, const std::vector<pid_t>& pids);

}  // namespace hyperloop::ctl
