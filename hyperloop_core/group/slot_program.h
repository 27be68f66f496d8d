// The slot program of the offload datapath (HyperLoop §4.1): which WQEs stand in which ring of a
// replica, and which bytes of a metadata message complete them. The member writes the constant
// parts once, and the primary computes the varying parts of every operation (patches.h).
// docs/group-primitives.md has the picture and the reasons.
//
// Replica i of a group has three queue pairs. Every WQE is one 64 B block, and N slots fill each
// ring exactly, so that slot m mod N of operation m lies at the same place in every lap:
//
//   ring      blocks  slot m
//   up.RQ     N       RECV: scatters the replica's patch over the WQEs below, the rest into the
//                     slot's staging buffer
//   up.SQ     2N      WAIT(up.recv_cq, m) · SEND_EN(local)
//   local.SQ  4N      [WRITE src→dst | NOP] · [CAS | NOP] · READ seq → word · SEND_EN(down), fenced
//   down.SQ   4N      [WRITE data | NOP] · [READ flush | NOP] · SEND, fenced ·
//                     SEND_EN(up → m + lookahead)
//   at the    2N      WRITE_IMM · SEND_EN(up → m + lookahead) in even slots;
//   tail                          [READ | NOP] in odd ones
//
// That is FlushOrder::kHopByHop. With kPipelined a replica that forwards has a fourth queue pair,
// `ack` to the primary, and its `down` stops for no answer:
//
//   down.SQ   4N      [WRITE data | NOP] · SEND · READ next's sequence → proof ·
//                     SEND_EN(ack)
//   ack.SQ    4N      WAIT(down.send_cq, m) · WRITE_IMM proof → ack area · [READ | NOP] ·
//                     SEND_EN(up → m + lookahead), fenced
//
// RECV m patches every WQE of slot m in local, down and ack, and re-arms the two of operation
// m − rearm_distance in up for that slot's next lap. `up` never runs past what is re-armed, because
// slot m itself enables it `lookahead` slots ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "group/geometry.h"
#include "group/patches.h"
#include "group/result_area.h"
#include "hyperloop/core/group.h"
#include "rnic/wqe.h"

namespace hyperloop {

// --- blocks of a slot

inline constexpr uint32_t kUpBlocks = 2;
inline constexpr uint32_t kUpWait = 0, kUpEnableLocal = 1;
inline constexpr uint32_t kLocalBlocks = 4;
inline constexpr uint32_t kLocalCopy = 0, kLocalCas = 1, kLocalRead = 2, kLocalEnableDown = 3;
inline constexpr uint32_t kDownBlocks = 4;
inline constexpr uint32_t kDownWrite = 0, kDownFlush = 1, kDownSend = 2, kDownEnableUp = 3;
inline constexpr uint32_t kPipelinedSend = 1, kPipelinedFlush = 2, kPipelinedEnableAck = 3;
inline constexpr uint32_t kAckBlocks = 4;
inline constexpr uint32_t kAckWait = 0, kAckProof = 1, kAckRead = 2, kAckEnableUp = 3;
inline constexpr uint32_t kTailBlocks = 2;
// kTailFollow is SEND_EN(up) in even slots and READ in odd ones.
inline constexpr uint32_t kTailAck = 0, kTailFollow = 1;

static_assert(kLocalBlocks <= kMaxSlotBlocks && kDownBlocks <= kMaxSlotBlocks);
static_assert(kAckBlocks <= kMaxSlotBlocks);

// Staging buffer of a slot: what a RECV brings beyond the replica's own patch. The 4 bytes before
// the result area take the receive counter in slots whose RECV does not scatter it to the doorbell
// record.
inline constexpr uint32_t kStagingCounter = 4;
inline constexpr uint32_t kStagingResult = 8;
inline constexpr uint32_t kMaxReceiveSges = 28;  // a RQ stride of 512 B

// When a hop's flush takes place, and how its proof reaches the primary
// (docs/group-primitives.md, section 6).
enum class FlushOrder : uint8_t {
  // Both ends decide when they connect: hop by hop where one RNIC serves all nodes, else pipelined.
  kByPlace,
  // The SEND of a message waits for the answer of the flush's READ. It costs a round trip a hop,
  // and fewest WQEs.
  kHopByHop,
  // Nothing waits. The READ follows the SEND, and what it read travels to the primary.
  kPipelined,
};

// The indexes and sizes that follow from a group's geometry.
struct SlotProgram {
  GroupGeometry geometry;
  FlushOrder order = FlushOrder::kByPlace;
  uint32_t rearm_distance = 0;  // RECV m re-arms up's WQEs of operation m − rearm_distance
  uint32_t lookahead = 0;  // slot m enables up through slot m + lookahead = N − rearm_distance

  static SlotProgram For(const GroupGeometry& geometry);
  // Decides `order` where that is left to the place of the nodes.
  void Place(const PrimaryInfo& primary, std::span<const MemberInfo> chain);
  bool pipelined() const { return order == FlushOrder::kPipelined; }

  uint32_t down_blocks(uint32_t position) const {
    return geometry.is_tail(position) ? kTailBlocks : kDownBlocks;
  }
  // The operation whose up WQEs RECV `operation` writes: the next lap of
  // operation − rearm_distance.
  uint64_t rearmed(uint64_t operation) const { return operation + lookahead; }
  // Slots whose RECV writes the receive counter: every N/4-th. The RQ never runs out of receives,
  // because 3N/4 ≥ window.
  bool writes_receive_counter(uint32_t slot_index) const {
    return (slot_index & (geometry.slots / 4 - 1)) == 0;
  }
  // Tail slots whose second block is SEND_EN(up).
  static bool tail_enables(uint32_t slot_index) { return (slot_index & 1) == 0; }
  // Of the others, one in each N/4 slots READs from the primary. The answer proves that the
  // WRITE_IMMs before it will not be fetched again. The SEND_EN(up) behind it waits for the answer.
  bool tail_reads(uint32_t slot_index) const {
    return (slot_index & (geometry.slots / 4 - 1)) == 1;
  }
  rnic::WqeControl tail_enable_control(uint32_t qpn, uint32_t slot_index) const {
    return {.qpn = qpn, .fence = tail_reads((slot_index - 1) & (geometry.slots - 1))};
  }
  // The same for `ack`, whose READ and SEND_EN(up) stand in one slot.
  bool ack_reads(uint32_t slot_index) const { return writes_receive_counter(slot_index); }

  // Until `order` is decided: at most.
  uint32_t patch_bytes(uint32_t position) const {
    if (pipelined())
      return geometry.is_tail(position) ? sizeof(TailPatch<FieldParts>) : sizeof(PipelinedPatch);
    return geometry.is_tail(position) ? sizeof(TailPatch<WholeParts>) : sizeof(ForwardPatch);
  }
  // Bytes of the patches behind the result area in the message that replica `position` receives.
  uint32_t later_patch_bytes(uint32_t position) const;
  uint32_t message_bytes(uint32_t position) const {
    return patch_bytes(position) + ResultBytes(geometry.group_size) + later_patch_bytes(position);
  }
  // Where replica `position`'s patch starts in the message that the primary sends.
  uint32_t patch_offset(uint32_t position) const;
  // Where slot `slot` of `member` has the sequence number of its operation, once RECV ran.
  uint64_t sequence_addr(const MemberInfo& member, uint32_t slot) const {
    return member.staging_addr + uint64_t{slot} * staging_bytes(member.position) + kStagingResult;
  }
  uint32_t staging_bytes(uint32_t position) const {
    return (kStagingResult + ResultBytes(geometry.group_size) + later_patch_bytes(position) + 63) /
           64 * 64;
  }
};

// Word 0 of a control segment in ring order, for block number `block` (free running; its low 16
// bits count).
inline uint32_t Word0(uint64_t block, rnic::WqeOpcode opcode) {
  return __builtin_bswap32((static_cast<uint32_t>(block & 0xffff) << 8) | opcode);
}

// The WQEs whose encoding both ends need: the member in its rings, the primary in its templates.
void EncodeLocalCopy(void* wqe, uint32_t qpn, const MemberInfo& member);
void EncodeLocalCas(void* wqe, uint32_t qpn, const MemberInfo& member, const rnic::Sge& original);
void EncodeDownWrite(void* wqe, uint32_t qpn, const MemberInfo& member, const MemberInfo& next);
// The READ that shows that an earlier WRITE_IMM to the ack area is acknowledged.
void EncodeAckRead(void* wqe, uint32_t qpn, const PrimaryInfo& primary, const rnic::Sge& sink);
// A NOP of the same size, for the slots that have no such READ.
void EncodeAckNop(void* wqe, uint32_t qpn);
// The control fields of a WQE that has no fence, and of one that waits for the READs before it.
rnic::WqeControl PlainControl(uint32_t qpn);
rnic::WqeControl FencedControl(uint32_t qpn);

}  // namespace hyperloop
