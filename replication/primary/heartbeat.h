// Heartbeat: a thread that moves the heartbeat word of every member each 100 ms by RDMA WRITE, so
// that others see that the owner lives without asking any replica's CPU. It outlives the
// RemoteAccess of each member, and has none while a group is restored.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "primary/periodic_thread.h"
#include "primary/replica_handle.h"

namespace hyperloop {

class Heartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  // Its RemoteAccess outlives the heartbeat, or is first removed from the targets.
  struct Target {
    RemoteAccess* access = nullptr;
    RemoteMemory word;
  };
  // `avoid_cpu` as PeriodicThread's: a living primary whose thread is starved would look dead.
  Heartbeat(std::vector<Target> targets, int avoid_cpu);

  // Once this has returned, nothing is written to the former targets. It does not wait for the
  // network.
  void SetTargets(std::vector<Target> targets);
  // Whether a target's RemoteAccess has failed: its replica, or the way to it, is gone.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void Beat();

  std::mutex targets_mutex_;
  std::vector<Target> targets_;  // guarded by targets_mutex_
  std::atomic<bool> lost_{false};
  uint64_t word_;          // used by the thread only
  PeriodicThread thread_;  // last: it uses the members above
};

}  // namespace hyperloop
