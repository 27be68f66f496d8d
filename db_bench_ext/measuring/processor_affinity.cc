#include "measuring/processor_affinity.h"

#include <cerrno>
#include <string>

namespace hyperloop::bench {

std::vector<int> AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) processors.push_back(cpu);
  }
  return processors;
}

Result<std::unique_ptr<ProcessorAffinity>> ProcessorAffinity::To(int cpu) {
  std::unique_ptr<ProcessorAffinity> affinity(new ProcessorAffinity);
  CPU_ZERO(&affinity->before_);
  ::sched_getaffinity(0, sizeof affinity->before_, &affinity->before_);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    return FromErrno(errno, "binding to processor " + std::to_string(cpu));
  }
  return affinity;
}

ProcessorAffinity::~ProcessorAffinity() { ::sched_setaffinity(0, sizeof before_, &before_); }

}  // namespace hyperloop::bench
