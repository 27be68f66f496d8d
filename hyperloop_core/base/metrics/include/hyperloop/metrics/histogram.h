// Histogram: counts times by their power of two, from 1 µs to 8.4 s.
//
// Thread safe: all accesses are relaxed atomics, which pair with nothing. A reader may see a time
// in one number and not yet in another.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hyperloop::metrics {

class Histogram {
 public:
  // Bucket i has the times of at most 2^i µs that no bucket before it has; the last one has the
  // longer ones.
  static constexpr size_t kBuckets = 25;

  void Add(uint64_t nanoseconds) {
    const uint64_t microseconds = (nanoseconds + 999) / 1000;
    const size_t bucket =
        microseconds <= 1 ? 0 : static_cast<size_t>(std::bit_width(microseconds - 1));
    buckets_[std::min(bucket, kBuckets - 1)].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(nanoseconds, std::memory_order_relaxed);
  }

  struct Counts {
    std::array<uint64_t, kBuckets> buckets{};
    uint64_t nanoseconds = 0;  // the sum of all times
  };
  Counts Read() const {
    Counts counts;
    for (size_t i = 0; i < kBuckets; ++i)
      counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    counts.nanoseconds = nanoseconds_.load(std::memory_order_relaxed);
    return counts;
  }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> nanoseconds_{0};
};

}  // namespace hyperloop::metrics
