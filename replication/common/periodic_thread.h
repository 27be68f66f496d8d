// PeriodicThread: calls `work` on a thread of its own, after the pause that its last call returned.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "hyperloop/core/mutex.h"

namespace hyperloop {

class PeriodicThread {
 public:
  // Returns how long to wait after this call before the next one.
  using Work = std::function<std::chrono::milliseconds()>;

  // `name`: at most 15 characters. `avoid_cpu`: a processor that the thread does not use if it may
  // run elsewhere; −1: none. An RNIC daemon pinned there at nice −20 would let the thread run only
  // for a few per cent of the time, in slices some hundred milliseconds apart.
  PeriodicThread(std::string name, Work work, int avoid_cpu);
  // From now on no call begins. Does not wait for one that is under way.
  void RequestStop();
  // Waits for a call that is under way. The thread itself must not destroy the object.
  ~PeriodicThread();
  // Ends the pause that is under way, or else the next one, at once.
  void Wake();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void Run();
  void AvoidCpu() const;

  const std::string name_;
  const Work work_;
  const int avoid_cpu_;
  Mutex mutex_;
  ConditionVariable wake_;
  bool stop_ HL_GUARDED_BY(mutex_) = false;
  bool woken_ HL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hyperloop
