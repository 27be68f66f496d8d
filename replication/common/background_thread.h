// For threads whose work can wait: what they send and check must not delay commits.
#pragma once

#include <sys/resource.h>

namespace hyperloop {

// The calling thread gets about a tenth of a processor that others want, and all of it otherwise.
// If a filter of system calls refuses that, the thread goes on as it was.
inline void YieldToOtherThreads() {
  constexpr int kNice = 10;
  if (getpriority(PRIO_PROCESS, 0) < kNice) setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace hyperloop
