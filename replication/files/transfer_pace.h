// TransferPace: whether a replica moves the bytes of files fast enough to be waited for. It has no
// clock.
//
// A pace alone does not tell a slow replica from a slow machine or network of the one that waits.
// So where others have moved the same bytes, theirs is compared.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hyperloop {

class TransferPace {
 public:
  // A disk that works is many times as fast, and a replica that lies can be as slow as it likes.
  static constexpr uint64_t kLeast = 256u << 10;  // bytes a second
  static constexpr std::chrono::seconds kWindow{5};
  // More of a call does not count. So one call alone makes nobody slow: a machine that works may be
  // stopped for a while, or its disk be busy.
  static constexpr std::chrono::nanoseconds kMostOfCall = std::chrono::nanoseconds(kWindow) / 2;

  // Notes a call that took `took`, and moved `moved` of the `asked` bytes. One that moved them all
  // counts at least as the bytes that kLeast moves in its time, of which a second counts. So small
  // files make nobody slow, and nobody fast, either. True: a window
  // has ended with this call, and less than kLeast was moved in it.
  bool Note(uint64_t moved, uint64_t asked, std::chrono::nanoseconds took) {
    bytes_ += moved;
    const double seconds = std::min(1.0, std::chrono::duration<double>(took).count());
    const auto of_time = static_cast<uint64_t>(std::ceil(static_cast<double>(kLeast) * seconds));
    credit_ += moved == asked ? std::max(moved, of_time) : moved;
    time_ += std::min(took, kMostOfCall);
    if (time_ < kWindow) return false;
    slow_ = static_cast<double>(credit_) <
            static_cast<double>(kLeast) * std::chrono::duration<double>(time_).count();
    window_bytes_ = bytes_;
    window_credit_ = credit_;
    window_time_ = time_;
    bytes_ = credit_ = 0;
    time_ = {};
    return slow_;
  }
  // In the last window that has ended.
  bool slow() const { return slow_; }
  uint64_t window_bytes() const { return window_bytes_; }
  // What counts a second, in the last window that has ended and since then; infinite: no call took
  // any time.
  double rate() const {
    const double seconds = std::chrono::duration<double>(window_time_ + time_).count();
    return seconds == 0 ? std::numeric_limits<double>::infinity()
                        : static_cast<double>(window_credit_ + credit_) / seconds;
  }
  // Whether one with this rate is slow beside one with that of `other`.
  static bool IsSlowBeside(double rate, double other) { return 4 * rate < other; }

 private:
  uint64_t bytes_ = 0, credit_ = 0, window_bytes_ = 0, window_credit_ = 0;
  std::chrono::nanoseconds time_{}, window_time_{};  // of the calls of a window
  bool slow_ = false;
};

}  // namespace hyperloop
