// Clock: the steady clock that the engine's timers follow (EngineOptions::now_ns).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace hyperloop::softrnic {

class Clock {
 public:
  // `now_ns` outlives the clock; if it is empty, the system's steady clock is read.
  explicit Clock(const std::function<uint64_t()>& now_ns) : now_ns_(now_ns) {}
  // The time in nanoseconds since an arbitrary moment.
  uint64_t Now() const {
    if (now_ns_) return now_ns_();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }

 private:
  const std::function<uint64_t()>& now_ns_;
};

}  // namespace hyperloop::softrnic
