// Processor time that processes have used.
#pragma once

#include <sys/types.h>

#include "hyperloop/core/status.h"

namespace hyperloop::bench {

// Of all threads of the process, also those that ended, in seconds. kNotFound: no such process.
Result<double> CpuSeconds(pid_t pid);
// The same with its living descendants.
Result<double> CpuSecondsOfTree(pid_t pid);
// For which the threads that it has now ran or waited for a processor, in seconds; 0 when it is
// gone.
double WantedSeconds(pid_t pid);
// How many living descendants it has.
size_t Descendants(pid_t pid);

}  // namespace hyperloop::bench
