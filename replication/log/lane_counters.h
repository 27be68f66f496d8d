// LaneCounters: what a LogLane has done and how full it is, for readers that must not wait for the
// lane's mutex, which is held while replicas are waited for.
//
// Whoever holds that mutex writes; any thread reads. Each number is a relaxed atomic, which pairs
// with nothing, so a reader may see one newer than another. An append stores five of them, and
// every kTimed-th one also reads the clock, as its Await does.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyperloop/metrics/histogram.h"

namespace hyperloop {

struct LaneCounters {
  static constexpr uint64_t kTimed = 16;

  using Number = std::atomic<uint64_t>;
  static void Set(Number& number, uint64_t value) {
    number.store(value, std::memory_order_relaxed);
  }
  // The only writer may add in two steps.
  static void Add(Number& number, uint64_t value) {
    Set(number, number.load(std::memory_order_relaxed) + value);
  }
  static uint64_t Get(const Number& number) { return number.load(std::memory_order_relaxed); }

  // As of the newest append or tick.
  Number appends{0}, append_bytes{0}, syncs{0}, last_seq{0}, acked_seq{0}, ring_used{0};
  // As of the newest tick that found the mutex free.
  Number ring_waits{0}, checkpoints{0}, data_used{0}, data_waits{0};
  // Constant.
  Number ring{0}, data{0}, data_reserved{0};
  metrics::Histogram acknowledgements;
};

}  // namespace hyperloop
