#include "group/geometry.h"

#include <bit>

#include "hyperloop/core/text.h"

namespace hyperloop {

uint32_t SlotsFor(uint32_t window) {
  // More than twice the window would take cache and gain nothing, because an operation waits for
  // its window, not for its slot.
  const uint32_t least = window > kMaxWindow ? kMaxSlots : 2 * window;
  return std::bit_ceil(least < kMinSlots ? kMinSlots : least);
}

Result<GroupGeometry> GroupGeometry::For(Datapath datapath, uint32_t group_size, uint32_t window,
                                         uint32_t slots) {
  if (group_size < 1 || group_size > kMaxGroupSize) {
    return InvalidArgument(Text("a group of ", group_size, " replicas: between 1 and ",
                                kMaxGroupSize, " are possible"));
  }
  if (window < 1 || window > kMaxWindow) {
    return InvalidArgument(Text("window of ", window, " operations: 1 to ", kMaxWindow,
                                " are possible, because a slot takes ", kMaxSlotBlocks,
                                " of the at most ", kMaxRingBlocks,
                                " blocks of a ring and twice the window must fit"));
  }
  if (slots == 0) slots = SlotsFor(window);
  if (!std::has_single_bit(slots) || slots < kMinSlots || slots < 2 * window || slots > kMaxSlots) {
    return InvalidArgument(Text(slots, " slots for a window of ", window,
                                ": a power of two from max(", kMinSlots, ", 2 x window) to ",
                                kMaxSlots, " is needed; 0 chooses"));
  }
  return GroupGeometry{.datapath = datapath,
                       .group_size = group_size,
                       .window = window,
                       .slots = slots,
                       .flush_interval = slots / 2};
}

}  // namespace hyperloop
