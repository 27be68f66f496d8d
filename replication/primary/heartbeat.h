// Heartbeat: a thread that moves the heartbeat word of every member each 100 ms by RDMA WRITE, so
// that others see that the owner lives without asking any replica's CPU, and that calls `tick` as
// often as the last call asked for.
#pragma once

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

  // `links` and what they hang on outlive the heartbeat.
  struct Target {
    RdmaLink* link = nullptr;
    RemoteMemory word;
  };
  // `avoid_cpu`: a processor that the thread keeps off if it may run elsewhere; −1: none. An RNIC
  // daemon pinned there at nice −20 would let it run for a few per cent of the time, in slices some
  // hundred milliseconds apart: a living primary would look dead.
  Heartbeat(std::vector<Target> targets, Tick tick, int avoid_cpu);
  ~Heartbeat();  // ends the thread

 private:
  void Run();
  void AvoidCpu() const;

  const std::vector<Target> targets_;
  const Tick tick_;
  const int avoid_cpu_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace hyperloop
