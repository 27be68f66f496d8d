#include "group/patch_messages.h"

#include <endian.h>

#include <cstring>

namespace hyperloop {

namespace {

struct Scratch {
  alignas(64) std::byte wqe[rnic::kMaxWqeBytes] = {};
};

template <class Enable>
void SetEnableConstants(Enable* part, const rnic::WqeControl& control) {
  Scratch scratch;
  rnic::EncodeSendEnable(scratch.wqe, control, 0, 0);
  part->CopyFrom(scratch.wqe);
}

template <class Wait>
void SetWaitConstants(Wait* part, uint32_t qpn) {
  Scratch scratch;
  rnic::EncodeWait(scratch.wqe, PlainControl(qpn), 0, 0);
  part->CopyFrom(scratch.wqe);
}

template <class Parts>
void WriteCommonConstants(CommonPatch<Parts>* patch, const MemberInfo& member) {
  const rnic::Sge nowhere{member.region_addr, 8, member.region_lkey};
  Scratch scratch;
  EncodeLocalCopy(scratch.wqe, member.local_qpn, member);
  patch->copy.CopyFrom(scratch.wqe);
  EncodeLocalCas(scratch.wqe, member.local_qpn, member, nowhere);
  patch->cas.CopyFrom(scratch.wqe);
  SetEnableConstants(&patch->enable_down, FencedControl(member.local_qpn));
  SetWaitConstants(&patch->wait, member.up_qpn);
  SetEnableConstants(&patch->enable_local, PlainControl(member.up_qpn));
}

template <class Write>
void WriteDownWriteConstants(Write* part, const MemberInfo& member, const MemberInfo& next) {
  Scratch scratch;
  EncodeDownWrite(scratch.wqe, member.down_qpn, member, next);
  part->CopyFrom(scratch.wqe);
}

void WriteForwardConstants(ForwardPatch* patch, const MemberInfo& member, const MemberInfo& next) {
  WriteDownWriteConstants(&patch->write, member, next);
  SetEnableConstants(&patch->enable_up, PlainControl(member.down_qpn));
}

void WriteForwardConstants(PipelinedPatch* patch, const MemberInfo& member,
                           const MemberInfo& next) {
  WriteDownWriteConstants(&patch->write, member, next);
  SetEnableConstants(&patch->enable_ack, PlainControl(member.down_qpn));
  SetWaitConstants(&patch->wait_flush, member.ack_qpn);
  SetEnableConstants(&patch->enable_up, FencedControl(member.ack_qpn));
}

template <class Parts>
void WriteTailConstants(TailPatch<Parts>* patch, const SlotProgram& program, uint32_t slot,
                        const PrimaryInfo& primary, const MemberInfo& member) {
  if (SlotProgram::tail_enables(slot)) {
    SetEnableConstants(&patch->follow, program.tail_enable_control(member.down_qpn, slot));
    return;
  }
  Scratch scratch;
  EncodeAckRead(scratch.wqe, member.down_qpn, primary, {primary.ack_addr, kFlushReadBytes, 0});
  patch->follow.CopyFrom(scratch.wqe);
}

template <class Part>
[[gnu::always_inline]] inline void SetStep(Part* part, uint32_t word0) {
  part->template Set<kWord0At>(word0);
}

template <class Write>
[[gnu::always_inline]] inline void SetWrite(Write* part, uint32_t word0, uint64_t remote,
                                            uint32_t bytes, uint64_t local) {
  SetStep(part, word0);
  part->template Set<kRemoteAddrAt>(htobe64(remote));
  part->template Set<kByteCountAt>(htobe32(bytes));
  part->template Set<kLocalAddrAt>(htobe64(local));
}

template <class Cas>
[[gnu::always_inline]] inline void SetCas(Cas* part, uint32_t word0, uint64_t remote,
                                          const Operation::Cas& cas) {
  SetStep(part, word0);
  part->template Set<kRemoteAddrAt>(htobe64(remote));
  part->template Set<kSwapAt>(htobe64(cas.desired));
  part->template Set<kCompareAt>(htobe64(cas.expected));
}

// WAIT and SEND_EN. `index` is in ring byte order.
template <class Enable>
[[gnu::always_inline]] inline void SetEnable(Enable* part, uint32_t word0, uint32_t index) {
  SetStep(part, word0);
  part->template Set<kIndexAt>(index);
}

void SetCounter(ReceiveCounter* counter, uint32_t be32) {
  std::memcpy(counter->be32, &be32, sizeof(be32));
}

// A 16-bit or 24-bit index, or a counter, as the ring holds it.
uint32_t RingIndex(uint64_t value, uint32_t mask) {
  return htobe32(static_cast<uint32_t>(value) & mask);
}

// The words of an operation's patches that are the same on every replica.
struct SharedWords {
  uint32_t copy, cas, no_cas, read, enable_down;
  uint32_t wait, wait_index;
  uint32_t enable_local, enable_local_index;
  uint32_t enable_up_index;
  uint32_t enable_ack_index;
  uint32_t wait_flush_index;
  uint32_t receive_counter;
};

[[gnu::always_inline]] inline SharedWords WordsOf(uint64_t m, bool has_copy,
                                                  const SlotProgram& program) {
  const uint64_t local = m * kLocalBlocks;
  const uint64_t rearmed = program.rearmed(m);
  const uint64_t up = rearmed * kUpBlocks;
  return {.copy = Word0(local + kLocalCopy, has_copy ? rnic::kWqeWrite : rnic::kWqeNop),
          .cas = Word0(local + kLocalCas, rnic::kWqeCompareSwap),
          .no_cas = Word0(local + kLocalCas, rnic::kWqeNop),
          .read = Word0(local + kLocalRead, rnic::kWqeRead),
          .enable_down = Word0(local + kLocalEnableDown, rnic::kWqeSendEnable),
          .wait = Word0(up + kUpWait, rnic::kWqeWait),
          .wait_index = RingIndex(rearmed, rnic::kWaitIndexMask),
          .enable_local = Word0(up + kUpEnableLocal, rnic::kWqeSendEnable),
          .enable_local_index = RingIndex((rearmed + 1) * kLocalBlocks, 0xffff),
          .enable_up_index = RingIndex((rearmed + 1) * kUpBlocks, 0xffff),
          .enable_ack_index = RingIndex((m + 1) * kAckBlocks, 0xffff),
          .wait_flush_index = RingIndex(m, rnic::kWaitIndexMask),
          .receive_counter = RingIndex(m + program.geometry.slots, 0xffff)};
}

// Patches the WQEs that every replica has, on the one whose region begins at `region`. `down_end`:
// the block behind the slot in its ring `down`.
template <class Parts>
void PatchCommon(CommonPatch<Parts>* patch, const SharedWords& words, const Operation& operation,
                 bool executes_cas, uint64_t region, uint64_t down_end) {
  const Operation::Copy& copy = operation.copy;
  const Operation::Cas& cas = operation.cas;
  if (copy.size != 0) {
    SetWrite(&patch->copy, words.copy, region + copy.destination, static_cast<uint32_t>(copy.size),
             region + copy.source);
  } else {
    SetStep(&patch->copy, words.copy);
  }
  if (executes_cas) {
    SetCas(&patch->cas, words.cas, region + cas.offset, cas);
  } else {
    SetStep(&patch->cas, words.no_cas);
  }
  SetStep(&patch->read, words.read);
  SetEnable(&patch->wait, words.wait, words.wait_index);
  SetEnable(&patch->enable_local, words.enable_local, words.enable_local_index);
  SetEnable(&patch->enable_down, words.enable_down, RingIndex(down_end, 0xffff));
}

// Patches the WRITE of `write` in ring `down` of a replica that forwards, from its region to the
// next one's.
template <class Write>
void PatchDownWrite(Write* part, uint64_t m, const Range& write, uint64_t region,
                    uint64_t next_region) {
  const uint64_t block = m * kDownBlocks + kDownWrite;
  if (write.size != 0) {
    SetWrite(part, Word0(block, rnic::kWqeWrite), next_region + write.offset,
             static_cast<uint32_t>(write.size), region + write.offset);
  } else {
    SetStep(part, Word0(block, rnic::kWqeNop));
  }
}

// Patches the ring `down` of a replica that forwards, behind its WRITE.
void PatchForward(ForwardPatch* patch, const SharedWords& words, uint64_t m, bool flush) {
  const uint64_t down = m * kDownBlocks;
  SetStep(&patch->flush, Word0(down + kDownFlush, flush ? rnic::kWqeRead : rnic::kWqeNop));
  SetStep(&patch->send, Word0(down + kDownSend, rnic::kWqeSend));
  SetEnable(&patch->enable_up, Word0(down + kDownEnableUp, rnic::kWqeSendEnable),
            words.enable_up_index);
  SetCounter(&patch->receive_counter, words.receive_counter);
}

// The same with FlushOrder::kPipelined, and the ring `ack`. Its flush is always a READ.
void PatchForward(PipelinedPatch* patch, const SharedWords& words, uint64_t m, bool /*flush*/) {
  const uint64_t down = m * kDownBlocks, ack = m * kAckBlocks;
  SetStep(&patch->send, Word0(down + kPipelinedSend, rnic::kWqeSend));
  SetStep(&patch->flush, Word0(down + kPipelinedFlush, rnic::kWqeRead));
  SetEnable(&patch->enable_ack, Word0(down + kPipelinedEnableAck, rnic::kWqeSendEnable),
            words.enable_ack_index);
  SetEnable(&patch->wait_flush, Word0(ack + kAckWait, rnic::kWqeWait), words.wait_flush_index);
  SetStep(&patch->proof, Word0(ack + kAckProof, rnic::kWqeWriteImm));
  SetStep(&patch->read, Word0(ack + kAckRead, rnic::kWqeRead));
  SetEnable(&patch->enable_up, Word0(ack + kAckEnableUp, rnic::kWqeSendEnable),
            words.enable_up_index);
  SetCounter(&patch->receive_counter, words.receive_counter);
}

// Patches the ring `down` of the last replica.
template <class Parts>
void PatchTail(TailPatch<Parts>* patch, const SharedWords& words, uint64_t m,
               const SlotProgram& program) {
  const uint64_t tail = m * kTailBlocks;
  const uint32_t slot = program.geometry.slot(m);
  SetStep(&patch->ack, Word0(tail + kTailAck, rnic::kWqeWriteImm));
  if (SlotProgram::tail_enables(slot)) {
    SetEnable(&patch->follow, Word0(tail + kTailFollow, rnic::kWqeSendEnable),
              words.enable_up_index);
  } else {
    SetStep(&patch->follow,
            Word0(tail + kTailFollow, program.tail_reads(slot) ? rnic::kWqeRead : rnic::kWqeNop));
  }
  SetCounter(&patch->receive_counter, words.receive_counter);
}

}  // namespace

PatchMessages::PatchMessages(const SlotProgram& program)
    : Messages(program.geometry, program.message_bytes(0)), program_(program) {}

void PatchMessages::WriteConstants(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  program_.Place(primary, chain);
  set_message_bytes(program_.message_bytes(0));
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    patch_offset_[i] = program_.patch_offset(i);
    region_addr_[i] = chain[i].region_addr;
  }
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    if (program_.pipelined())
      WriteConstantsAs<FieldParts, PipelinedPatch>(s, primary, chain);
    else
      WriteConstantsAs<WholeParts, ForwardPatch>(s, primary, chain);
  }
}

template <class Parts, class Forwarding>
void PatchMessages::WriteConstantsAs(uint32_t slot, const PrimaryInfo& primary,
                                     std::span<const MemberInfo> chain) {
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    std::byte* const at = message(slot) + patch_offset_[i];
    WriteCommonConstants(reinterpret_cast<CommonPatch<Parts>*>(at), chain[i]);
    if (geometry_.is_tail(i)) {
      WriteTailConstants(reinterpret_cast<TailPatch<Parts>*>(at), program_, slot, primary,
                         chain[i]);
    } else {
      WriteForwardConstants(reinterpret_cast<Forwarding*>(at), chain[i], chain[i + 1]);
    }
  }
}

// The result area stays 0: original and word are 0 until a replica writes them.
bool PatchMessages::Encode(uint64_t m, const Operation& operation) {
  const bool flush = operation.flush || geometry_.forces_flush(m);
  std::byte* const base = message(m);
  const uint64_t sequence = m + 1;
  if (program_.pipelined()) {
    EncodeAs<FieldParts, PipelinedPatch>(base, m, operation, flush);
  } else {
    EncodeAs<WholeParts, ForwardPatch>(base, m, operation, flush);
  }
  std::memcpy(base + program_.patch_bytes(0), &sequence, sizeof(sequence));
  return flush;
}

template <class Parts, class Forwarding>
void PatchMessages::EncodeAs(std::byte* base, uint64_t m, const Operation& operation, bool flush) {
  const Operation::Cas& cas = operation.cas;
  const SharedWords words = WordsOf(m, operation.copy.size != 0, program_);
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    std::byte* const at = base + patch_offset_[i];
    const bool tail = geometry_.is_tail(i);
    const bool executes_cas = cas.present && (cas.execute_map >> i & 1) != 0;
    PatchCommon(reinterpret_cast<CommonPatch<Parts>*>(at), words, operation, executes_cas,
                region_addr_[i], (m + 1) * (tail ? kTailBlocks : kDownBlocks));
    if (tail) {
      PatchTail(reinterpret_cast<TailPatch<Parts>*>(at), words, m, program_);
      continue;
    }
    auto* const forwarding = reinterpret_cast<Forwarding*>(at);
    PatchDownWrite(&forwarding->write, m, operation.write, region_addr_[i], region_addr_[i + 1]);
    PatchForward(forwarding, words, m, flush);
  }
}

}  // namespace hyperloop
