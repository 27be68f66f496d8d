// Heartbeat: a thread that moves the heartbeat word of every member each 100 ms by RDMA WRITE, so
// that others see that the owner lives without asking any replica's CPU, and that calls `tick` as
// often as the last call asked for. It outlives the links that it writes over: while a group is
// brought back it has none.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "primary/peer.h"

namespace hyperloop {

class Heartbeat {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};
  // Returns how long to wait before the next call, at most.
  using Tick = std::function<std::chrono::milliseconds()>;

  // The link outlives the heartbeat, or its place among the targets.
  struct Target {
    RdmaLink* link = nullptr;
    RemoteMemory word;
  };
  // `avoid_cpu`: a processor that the thread keeps off if it may run elsewhere; −1: none. An RNIC
  // daemon pinned there at nice −20 would let it run for a few per cent of the time, in slices some
  // hundred milliseconds apart: a living primary would look dead.
  Heartbeat(std::vector<Target> targets, Tick tick, int avoid_cpu);
  ~Heartbeat() { Stop(); }
  void Start();
  void Stop();  // ends the thread; not from `tick`

  // From when it returns on, nothing is written to the former targets. Waits for no network.
  void SetTargets(std::vector<Target> targets);
  // Some target's link has failed: its replica, or the way to it, is gone.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void Run();
  void Beat(uint64_t word);
  void AvoidCpu() const;

  std::mutex targets_mutex_;
  std::vector<Target> targets_;  // guarded by targets_mutex_
  std::atomic<bool> lost_{false};
  const Tick tick_;
  const int avoid_cpu_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace hyperloop
