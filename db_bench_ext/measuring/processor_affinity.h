// Which processors this thread may use.
#pragma once

#include <sched.h>

#include <memory>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::bench {

// In ascending order; empty if they cannot be determined.
std::vector<int> AllowedProcessors();

// Binds this thread, and the threads that it makes, to one processor for as long as the object
// lives.
class ProcessorAffinity {
 public:
  static Result<std::unique_ptr<ProcessorAffinity>> To(int cpu);
  ~ProcessorAffinity();
  ProcessorAffinity(const ProcessorAffinity&) = delete;
  ProcessorAffinity& operator=(const ProcessorAffinity&) = delete;

 private:
  ProcessorAffinity() = default;
  cpu_set_t before_;
};

}  // namespace hyperloop::bench
