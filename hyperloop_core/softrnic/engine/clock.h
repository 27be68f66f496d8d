// Clock: the steady clock that the engine's timers follow (EngineOptions::now_ns). A turn of the
// engine is short against the timers, so the clock is read at most once in it. Calls nothing of the
// engine.
#pragma once

#include <cstdint>
#include <functional>

#include "base/steady_ns.h"

namespace hyperloop::softrnic {

class Clock {
 public:
  // `now_ns` outlives the clock; if it is empty, the system's steady clock is read.
  explicit Clock(const std::function<uint64_t()>& now_ns) : now_ns_(now_ns) {}
  // The time in nanoseconds since an arbitrary moment; within a turn, that of its first call.
  uint64_t Now() const {
    if (!in_turn_) return Read();
    if (turn_ns_ == 0) turn_ns_ = Read();
    return turn_ns_;
  }

  // A turn lasts as long as the object.
  class InTurn {
   public:
    explicit InTurn(Clock& clock) : clock_(clock) { clock_.in_turn_ = true; }
    ~InTurn() {
      clock_.in_turn_ = false;
      clock_.turn_ns_ = 0;
    }
    InTurn(const InTurn&) = delete;
    InTurn& operator=(const InTurn&) = delete;

   private:
    Clock& clock_;
  };

 private:
  uint64_t Read() const { return now_ns_ ? now_ns_() : SteadyNs(); }

  const std::function<uint64_t()>& now_ns_;
  bool in_turn_ = false;
  mutable uint64_t turn_ns_ = 0;  // 0: not read in this turn
};

}  // namespace hyperloop::softrnic
