#include "group/slot_program.h"

#include <algorithm>
#include <span>

namespace hyperloop {

using rnic::Sge;
using rnic::WqeControl;

SlotProgram SlotProgram::For(const GroupGeometry& geometry) {
  SlotProgram program{.geometry = geometry, .rearm_distance = geometry.window + 1};
  program.lookahead = geometry.slots - program.rearm_distance;
  return program;
}

void SlotProgram::Place(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  if (order != FlushOrder::kByPlace) return;
  const auto together = [&](const MemberInfo& member) { return member.rnic == primary.rnic; };
  order = primary.rnic != 0 && std::ranges::all_of(chain, together) ? FlushOrder::kHopByHop
                                                                    : FlushOrder::kPipelined;
}

uint32_t SlotProgram::later_patch_bytes(uint32_t position) const {
  uint32_t bytes = 0;
  for (uint32_t later = position + 1; later < geometry.group_size; ++later)
    bytes += patch_bytes(later);
  return bytes;
}

uint32_t SlotProgram::patch_offset(uint32_t position) const {
  uint32_t offset = 0;
  for (uint32_t earlier = 0; earlier < position; ++earlier) offset += patch_bytes(earlier);
  return position == 0 ? 0 : offset + ResultBytes(geometry.group_size);
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

void EncodeAckRead(void* wqe, uint32_t qpn, const PrimaryInfo& primary, const Sge& sink) {
  rnic::EncodeRead(wqe, PlainControl(qpn), primary.ack_addr, primary.ack_rkey, std::span(&sink, 1));
}

void EncodeAckNop(void* wqe, uint32_t qpn) { rnic::EncodeNop(wqe, PlainControl(qpn), 3); }

}  // namespace hyperloop
