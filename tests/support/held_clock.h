// HeldClock: while one lives, std::chrono::steady_clock moves in this program only when the test
// says so. What waits by that clock then depends on no other time, and waits no longer than a test
// takes to say so.
//
// Replaces std::chrono::steady_clock::now of the whole program, which reads the system's monotonic
// clock while no HeldClock lives. A sleep in the kernel takes its time all the same.
#pragma once

#include <atomic>
#include <chrono>
#include <ctime>

namespace hyperloop::test {

class HeldClock {
 public:
  HeldClock() { now_ = System().time_since_epoch().count(); }
  ~HeldClock() { now_ = 0; }
  HeldClock(const HeldClock&) = delete;
  HeldClock& operator=(const HeldClock&) = delete;

  static void Pass(std::chrono::nanoseconds time) { now_ += time.count(); }

  static std::chrono::steady_clock::time_point Now() {
    const int64_t held = now_;
    return held == 0 ? System() : At(held);
  }

 private:
  static std::chrono::steady_clock::time_point At(int64_t ns) {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
  }
  static std::chrono::steady_clock::time_point System() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return At(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
  }
  static inline std::atomic<int64_t> now_{0};  // 0: the system's clock
};

// The linker takes this one for std::chrono::steady_clock::now, before that of the library.
[[gnu::weak]] std::chrono::steady_clock::time_point NowOrHeld() noexcept
    asm("_ZNSt6chrono3_V212steady_clock3nowEv");
[[gnu::weak]] std::chrono::steady_clock::time_point NowOrHeld() noexcept {
  return HeldClock::Now();
}

}  // namespace hyperloop::test
