#include "group/slot_program.h"

#include <bit>

#include "group/text.h"

namespace hyperloop {

using rnic::Sge;
using rnic::WqeControl;

uint32_t SlotsFor(uint32_t window) {
  // A wider margin than 2·window costs cache and gains nothing: an operation waits for its window,
  // not for its slot.
  const uint32_t least = window > kMaxWindow ? kMaxSlots : 2 * window;
  return std::bit_ceil(least < kMinSlots ? kMinSlots : least);
}

Result<SlotProgram> SlotProgram::For(uint32_t group_size, uint32_t window, uint32_t slots) {
  if (group_size < 1 || group_size > kMaxGroupSize) {
    return InvalidArgument(Concat("a group of ", group_size, " replicas: between 1 and ",
                                  kMaxGroupSize, " are possible"));
  }
  if (window < 1 || window > kMaxWindow) {
    return InvalidArgument(Concat("window of ", window, " operations: 1 to ", kMaxWindow,
                                  " are possible, because a slot takes ", kLocalBlocks,
                                  " of the at most ", kMaxRingBlocks,
                                  " blocks of a ring and twice the window must fit"));
  }
  if (slots == 0) slots = SlotsFor(window);
  if (!std::has_single_bit(slots) || slots < kMinSlots || slots < 2 * window || slots > kMaxSlots) {
    return InvalidArgument(Concat(slots, " slots for a window of ", window,
                                  ": a power of two from max(", kMinSlots, ", 2 x window) to ",
                                  kMaxSlots, " is needed; 0 chooses"));
  }
  SlotProgram program;
  program.group_size = group_size;
  program.window = window;
  program.slots = slots;
  program.rearm_distance = window + 1;
  program.lookahead = slots - program.rearm_distance;
  program.flush_interval = slots / 2;
  return program;
}

uint32_t SlotProgram::later_patch_bytes(uint32_t position) const {
  uint32_t bytes = 0;
  for (uint32_t later = position + 1; later < group_size; ++later) bytes += patch_bytes(later);
  return bytes;
}

uint32_t SlotProgram::patch_offset(uint32_t position) const {
  uint32_t offset = 0;
  for (uint32_t earlier = 0; earlier < position; ++earlier) offset += patch_bytes(earlier);
  return position == 0 ? 0 : offset + ResultBytes(group_size);
}

WqeControl PlainControl(uint32_t qpn) { return {.qpn = qpn}; }
WqeControl FencedControl(uint32_t qpn) { return {.qpn = qpn, .fence = true}; }

void EncodeLocalCopy(void* wqe, uint32_t qpn, const MemberInfo& member) {
  const Sge source[] = {{member.region_addr, 1, member.region_lkey}};
  rnic::EncodeWrite(wqe, PlainControl(qpn), member.region_addr, member.region_rkey, source);
}

void EncodeLocalCas(void* wqe, uint32_t qpn, const MemberInfo& member, const Sge& original) {
  rnic::EncodeCompareSwap(wqe, PlainControl(qpn), member.region_addr, member.region_rkey, 0, 0,
                          original);
}

void EncodeDownWrite(void* wqe, uint32_t qpn, const MemberInfo& member, const MemberInfo& next) {
  const Sge source[] = {{member.region_addr, 1, member.region_lkey}};
  rnic::EncodeWrite(wqe, PlainControl(qpn), next.region_addr, next.region_rkey, source);
}

void EncodeTailRead(void* wqe, uint32_t qpn, const PrimaryInfo& primary, const Sge& sink) {
  rnic::EncodeRead(wqe, PlainControl(qpn), primary.ack_addr, primary.ack_rkey, std::span(&sink, 1));
}

}  // namespace hyperloop
