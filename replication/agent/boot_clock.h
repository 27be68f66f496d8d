// BootClock: a steady clock that also counts the time in which the machine was suspended, so that a
// lease ends then, too.
#pragma once

#include <chrono>
#include <ctime>

namespace hyperloop::agent {

struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() {
    timespec time{};
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace hyperloop::agent
