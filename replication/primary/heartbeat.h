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
  Heartbeat(std::vector<Target> targets, Tick tick);
  ~Heartbeat();  // ends the thread

 private:
  void Run();

  const std::vector<Target> targets_;
  const Tick tick_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace hyperloop
