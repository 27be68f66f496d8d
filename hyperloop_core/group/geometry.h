// GroupGeometry: the sizes of a group on which its ends must agree, and the slot of an operation.
// All datapaths use it.
#pragma once

#include <cstdint>

#include "hyperloop/core/group.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

inline constexpr uint32_t kMinSlots = 8;
inline constexpr uint32_t kMaxRingBlocks = 32768;
// The most blocks that a slot takes in any ring of a replica; each datapath asserts that it takes
// no more.
inline constexpr uint32_t kMaxSlotBlocks = 4;
static_assert(kMaxSlots * kMaxSlotBlocks <= kMaxRingBlocks);

// The size of a READ that flushes, in bytes. librpma reads as much; a READ of no bytes may touch
// nothing.
inline constexpr uint32_t kFlushReadBytes = 8;
// The bytes of memory for what such READs bring: a cache line that nothing else uses.
inline constexpr uint32_t kSinkBytes = 64;

struct GroupGeometry {
  Datapath datapath = Datapath::kOffload;
  uint32_t group_size = 0;
  uint32_t window = 0;
  uint32_t slots = 0;           // N
  uint32_t flush_interval = 0;  // N/2 (forces_flush)

  // kInvalidArgument: outside the limits, which the message names. `slots` 0: SlotsFor(window).
  static Result<GroupGeometry> For(Datapath datapath, uint32_t group_size, uint32_t window,
                                   uint32_t slots);

  uint32_t slot(uint64_t operation) const { return static_cast<uint32_t>(operation & (slots - 1)); }
  bool is_tail(uint32_t position) const { return position + 1 == group_size; }
  // In a chain these operations are flushed by a READ even if nobody asks. The READ's answer proves
  // that all earlier WQEs of its queue are acknowledged: the device will not fetch them again, so
  // that their slots may be rewritten.
  bool forces_flush(uint64_t operation) const { return (operation & (flush_interval - 1)) == 0; }
};

}  // namespace hyperloop
