// BulkConnectionTo: connections of the bulk lane to a replica.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "control/endpoint.h"
#include "control/owner.h"
#include "control/trust.h"
#include "files/bulk_target.h"

namespace hyperloop {

// How long a call may take. Thread safe.
class CallLimit {
 public:
  explicit CallLimit(std::chrono::nanoseconds each) : each_(each) {}
  // Each call that begins from now on ends at `last` or before.
  void EndBy(control::Deadline last) { last_.store(last, std::memory_order_relaxed); }
  // For a call that begins now.
  std::chrono::nanoseconds Left() const {
    const auto last = last_.load(std::memory_order_relaxed);
    if (last == control::Deadline::max()) return each_;
    return std::clamp<std::chrono::nanoseconds>(last - control::Clock::now(), {}, each_);
  }

 private:
  const std::chrono::nanoseconds each_;
  std::atomic<control::Deadline> last_{control::Deadline::max()};
};

// Returns a function that connects to the bulk port of the replica at `endpoint`, and asks there as
// the owner `own`. `limit` is that of connecting and of each call of the BulkTarget; it outlives
// both. Errors are those of ControlClient and of the replica.
BulkConnect BulkConnectionTo(control::Endpoint endpoint, uint16_t port, control::Trust trust,
                             Ownership own, const CallLimit& limit);

}  // namespace hyperloop
