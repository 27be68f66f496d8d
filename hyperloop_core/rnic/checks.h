// What every provider asks of its arguments. kInvalidArgument: the message has the value and what
// would be valid.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop::rnic {

// 16-bit indexes compare cyclically within half their range.
inline constexpr uint32_t kMaxRingEntries = 32768;
inline constexpr uint32_t kMaxRetries = 7;
inline constexpr std::chrono::microseconds kMaxRnrTimer{491'520};
inline constexpr uint32_t kMaxSgeBytes = 0x7fffffff;

// What a device has.
struct QueueLimits {
  uint32_t ring;         // entries of a send or receive ring
  uint32_t receive_sge;  // entries of one receive
};
// Completion queues, rings, retries and times; the rest of `attr` is each provider's own.
Status CheckQueues(const QpAttr& attr, const QueueLimits& limits);

// kNoSpace: requests that need more of a ring ("send", "receive") than is free, counted in `unit`.
struct RingUse {
  size_t used, capacity, needed;
};
Status RingFull(std::string_view ring, std::string_view unit, const RingUse& use);

Status BadSges(std::span<const Sge> sges, uint32_t limit);
// At most `limit` entries, none of them empty or too long. On the way of every request.
inline Status CheckSges(std::span<const Sge> sges, uint32_t limit) {
  bool good = sges.size() <= limit;
  for (const Sge& sge : sges) good &= sge.length - 1 < kMaxSgeBytes;
  if (good) [[likely]]
    return {};
  return BadSges(sges, limit);
}

}  // namespace hyperloop::rnic
