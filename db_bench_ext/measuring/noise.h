// Noise: stress-ng on one processor, as the other tenants of the replicas' machines.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::bench {

class Noise {
 public:
  // Starts stress-ng's matrix stressor `workers` times, at normal priority, bound to `cpu`. Each
  // has a session of its own, because the kernel first divides a processor among sessions
  // (autogroup), and in one session all of them together would count as one tenant. Returns when
  // all of them run. They end with the object, and when this process is killed. kNotFound:
  // stress-ng is not in PATH.
  static Result<std::unique_ptr<Noise>> Start(int cpu, uint32_t workers);
  ~Noise();
  Noise(const Noise&) = delete;
  Noise& operator=(const Noise&) = delete;

  // Processor time of all workers together, in seconds. kUnavailable: stress-ng has ended.
  Result<double> CpuSeconds() const;

 private:
  Noise() = default;
  Status Add(int cpu);
  Status AwaitWorkers() const;
  std::vector<pid_t> pids_;  // of each worker's parent, a stress-ng
};

}  // namespace hyperloop::bench
