// Processor time that processes have used.
#pragma once

#include <sys/types.h>

#include "hyperloop/core/status.h"

namespace hyperloop::bench {

// The time of all threads of the process, also of ended ones, in seconds. kNotFound: no such
// process.
Result<double> CpuSeconds(pid_t pid);
// The same, including its living descendants.
Result<double> CpuSecondsOfTree(pid_t pid);
// The time for which its present threads ran or waited for a processor, in seconds; 0 if it is
// gone.
double WantedSeconds(pid_t pid);
// How many living descendants it has.
size_t Descendants(pid_t pid);

}  // namespace hyperloop::bench
