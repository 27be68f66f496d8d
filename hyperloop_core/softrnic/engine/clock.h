// Clock: the steady clock that the engine's timers follow (EngineOptions::now_ns). Calls nothing of
// the engine.
#pragma once

#include <cstdint>
#include <functional>

#include "common/steady_ns.h"

namespace hyperloop::softrnic {

class Clock {
 public:
  // `now_ns` outlives the clock; if it is empty, the system's steady clock is read.
  explicit Clock(const std::function<uint64_t()>& now_ns) : now_ns_(now_ns) {}
  // The time in nanoseconds since an arbitrary moment.
  uint64_t Now() const { return now_ns_ ? now_ns_() : SteadyNs(); }

 private:
  const std::function<uint64_t()>& now_ns_;
};

}  // namespace hyperloop::softrnic
