// Heartbeat: a thread that moves the heartbeat word of every member each 100 ms by RDMA WRITE, so
// that others see that the owner lives without asking any replica's CPU. It outlives the links that
// it writes over: while a group is brought back it has none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "primary/peer.h"
#include "primary/periodic_thread.h"

namespace hyperloop {

class Heartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  // The link outlives the heartbeat, or its place among the targets.
  struct Target {
    RdmaLink* link = nullptr;
    RemoteMemory word;
  };
  // `avoid_cpu` as PeriodicThread's: a living primary whose thread is starved would look dead.
  Heartbeat(std::vector<Target> targets, int avoid_cpu);

  // From when it returns on, nothing is written to the former targets. Waits for no network.
  void SetTargets(std::vector<Target> targets);
  // Some target's link has failed: its replica, or the way to it, is gone.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void Beat();

  std::mutex targets_mutex_;
  std::vector<Target> targets_;  // guarded by targets_mutex_
  std::atomic<bool> lost_{false};
  uint64_t word_;          // the thread's alone
  PeriodicThread thread_;  // last: it uses what is above
};

}  // namespace hyperloop
