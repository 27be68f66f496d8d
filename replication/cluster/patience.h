// How long a process that is waited for may do nothing. A slow machine uses up none of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace hyperloop::cluster {

// What is seen of a process at one moment.
struct Sight {
  uint64_t done = 0;  // grows with what it does
  bool busy = false;  // it waits for a processor or its disk, or somebody has stopped it
};

// Pure: it is told what is seen and how long after the last look.
class Patience {
 public:
  // A look that comes later counts as one after so long: then the machine, or who looks, stood
  // still, and nothing is known of the process.
  static constexpr std::chrono::milliseconds kLongestPause{50};

  explicit Patience(std::chrono::milliseconds limit) : limit_(limit) {}

  void Look(const Sight& sight, std::chrono::nanoseconds since_last) {
    idle_ += std::min<std::chrono::nanoseconds>(since_last, kLongestPause);
    if (sight.busy || sight.done != done_) idle_ = {};
    done_ = sight.done;
  }
  // It was seen to do nothing for all of the limit.
  bool IsOver() const { return idle_ >= limit_; }

 private:
  const std::chrono::milliseconds limit_;
  std::chrono::nanoseconds idle_{0};
  uint64_t done_ = 0;
};

}  // namespace hyperloop::cluster
