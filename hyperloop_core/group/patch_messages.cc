#include "group/patch_messages.h"

#include <endian.h>

#include <cstring>

namespace hyperloop {

namespace {

// Copies the first sizeof(Patch) bytes of a WQE.
template <class Patch>
void CopyHead(Patch* patch, const std::byte* wqe) {
  static_assert(sizeof(Patch) <= rnic::kWqebbBytes);
  std::memcpy(static_cast<void*>(patch), wqe, sizeof(Patch));
}

struct Scratch {
  alignas(64) std::byte wqe[rnic::kMaxWqeBytes] = {};
};

void SetEnableConstants(EnablePatch* patch, const rnic::WqeControl& control) {
  Scratch scratch;
  rnic::EncodeSendEnable(scratch.wqe, control, 0, 0);
  CopyHead(patch, scratch.wqe);
}

void WriteCommonConstants(CommonPatch* patch, const MemberInfo& member) {
  const rnic::Sge nowhere{member.region_addr, 8, member.region_lkey};
  Scratch scratch;
  EncodeLocalCopy(scratch.wqe, member.local_qpn, member);
  CopyHead(&patch->copy, scratch.wqe);
  EncodeLocalCas(scratch.wqe, member.local_qpn, member, nowhere);
  CopyHead(&patch->cas, scratch.wqe);
  SetEnableConstants(&patch->enable_down, FencedControl(member.local_qpn));
  rnic::EncodeWait(scratch.wqe, PlainControl(member.up_qpn), 0, 0);
  CopyHead(&patch->wait, scratch.wqe);
  SetEnableConstants(&patch->enable_local, PlainControl(member.up_qpn));
}

void WriteDownWriteConstants(WritePatch* patch, const MemberInfo& member, const MemberInfo& next) {
  Scratch scratch;
  EncodeDownWrite(scratch.wqe, member.down_qpn, member, next);
  CopyHead(patch, scratch.wqe);
}

void WriteForwardConstants(ForwardPatch* patch, const MemberInfo& member, const MemberInfo& next) {
  WriteDownWriteConstants(&patch->write, member, next);
  SetEnableConstants(&patch->enable_up, PlainControl(member.down_qpn));
}

void WritePipelinedConstants(PipelinedPatch* patch, const MemberInfo& member,
                             const MemberInfo& next) {
  WriteDownWriteConstants(&patch->write, member, next);
  SetEnableConstants(&patch->enable_ack, PlainControl(member.down_qpn));
  Scratch scratch;
  rnic::EncodeWait(scratch.wqe, PlainControl(member.ack_qpn), 0, 0);
  CopyHead(&patch->wait_flush, scratch.wqe);
  SetEnableConstants(&patch->enable_up, FencedControl(member.ack_qpn));
}

void WriteTailConstants(TailPatch* patch, const SlotProgram& program, uint32_t slot,
                        const PrimaryInfo& primary, const MemberInfo& member) {
  if (SlotProgram::tail_enables(slot)) {
    SetEnableConstants(&patch->follow, program.tail_enable_control(member.down_qpn, slot));
    return;
  }
  Scratch scratch;
  EncodeAckRead(scratch.wqe, member.down_qpn, primary, {primary.ack_addr, kFlushReadBytes, 0});
  CopyHead(&patch->follow, scratch.wqe);
}

void SetWrite(WritePatch* patch, uint32_t word0, uint64_t remote, uint32_t bytes, uint64_t local) {
  patch->control.opmod_idx_opcode = word0;
  patch->remote.raddr = htobe64(remote);
  patch->local.byte_count = htobe32(bytes);
  patch->local.addr = htobe64(local);
}

void SetEnable(EnablePatch* patch, uint32_t word0, uint32_t index) {
  patch->control.opmod_idx_opcode = word0;
  patch->index = index;
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

SharedWords WordsOf(uint64_t m, bool has_copy, const SlotProgram& program) {
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
void PatchCommon(CommonPatch* patch, const SharedWords& words, const Operation& operation,
                 bool executes_cas, uint64_t region, uint64_t down_end) {
  const Operation::Copy& copy = operation.copy;
  const Operation::Cas& cas = operation.cas;
  if (copy.size != 0) {
    SetWrite(&patch->copy, words.copy, region + copy.destination, static_cast<uint32_t>(copy.size),
             region + copy.source);
  } else {
    patch->copy.control.opmod_idx_opcode = words.copy;
  }
  if (executes_cas) {
    patch->cas.control.opmod_idx_opcode = words.cas;
    patch->cas.remote.raddr = htobe64(region + cas.offset);
    patch->cas.operands.swap_add = htobe64(cas.desired);
    patch->cas.operands.compare = htobe64(cas.expected);
  } else {
    patch->cas.control.opmod_idx_opcode = words.no_cas;
  }
  patch->read.word0 = words.read;
  SetEnable(&patch->wait, words.wait, words.wait_index);
  SetEnable(&patch->enable_local, words.enable_local, words.enable_local_index);
  SetEnable(&patch->enable_down, words.enable_down, RingIndex(down_end, 0xffff));
}

// Patches the WRITE of `write` in ring `down` of a replica that forwards, from its region to the
// next one's.
void PatchDownWrite(WritePatch* patch, uint64_t m, const Range& write, uint64_t region,
                    uint64_t next_region) {
  const uint64_t block = m * kDownBlocks + kDownWrite;
  if (write.size != 0) {
    SetWrite(patch, Word0(block, rnic::kWqeWrite), next_region + write.offset,
             static_cast<uint32_t>(write.size), region + write.offset);
  } else {
    patch->control.opmod_idx_opcode = Word0(block, rnic::kWqeNop);
  }
}

// Patches the ring `down` of a replica that forwards, behind its WRITE.
void PatchForward(ForwardPatch* patch, const SharedWords& words, uint64_t m, bool flush) {
  const uint64_t down = m * kDownBlocks;
  patch->flush.word0 = Word0(down + kDownFlush, flush ? rnic::kWqeRead : rnic::kWqeNop);
  patch->send.word0 = Word0(down + kDownSend, rnic::kWqeSend);
  SetEnable(&patch->enable_up, Word0(down + kDownEnableUp, rnic::kWqeSendEnable),
            words.enable_up_index);
  patch->receive_counter = words.receive_counter;
}

// The same with FlushOrder::kPipelined, and the ring `ack`.
void PatchPipelined(PipelinedPatch* patch, const SharedWords& words, uint64_t m, bool ack_reads) {
  const uint64_t down = m * kDownBlocks, ack = m * kAckBlocks;
  patch->send.word0 = Word0(down + kPipelinedSend, rnic::kWqeSend);
  patch->flush.word0 = Word0(down + kPipelinedFlush, rnic::kWqeRead);
  SetEnable(&patch->enable_ack, Word0(down + kPipelinedEnableAck, rnic::kWqeSendEnable),
            words.enable_ack_index);
  SetEnable(&patch->wait_flush, Word0(ack + kAckWait, rnic::kWqeWait), words.wait_flush_index);
  patch->proof.word0 = Word0(ack + kAckProof, rnic::kWqeWriteImm);
  patch->read.word0 = Word0(ack + kAckRead, ack_reads ? rnic::kWqeRead : rnic::kWqeNop);
  SetEnable(&patch->enable_up, Word0(ack + kAckEnableUp, rnic::kWqeSendEnable),
            words.enable_up_index);
  patch->receive_counter = words.receive_counter;
}

// Patches the ring `down` of the last replica.
void PatchTail(TailPatch* patch, const SharedWords& words, uint64_t m, const SlotProgram& program) {
  const uint64_t tail = m * kTailBlocks;
  const uint32_t slot = program.geometry.slot(m);
  patch->ack.word0 = Word0(tail + kTailAck, rnic::kWqeWriteImm);
  if (SlotProgram::tail_enables(slot)) {
    SetEnable(&patch->follow, Word0(tail + kTailFollow, rnic::kWqeSendEnable),
              words.enable_up_index);
  } else {
    patch->follow.control.opmod_idx_opcode =
        Word0(tail + kTailFollow, program.tail_reads(slot) ? rnic::kWqeRead : rnic::kWqeNop);
  }
  patch->receive_counter = words.receive_counter;
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
    for (uint32_t i = 0; i < geometry_.group_size; ++i) {
      std::byte* const at = message(s) + patch_offset_[i];
      WriteCommonConstants(reinterpret_cast<CommonPatch*>(at), chain[i]);
      if (geometry_.is_tail(i)) {
        WriteTailConstants(reinterpret_cast<TailPatch*>(at), program_, s, primary, chain[i]);
      } else if (program_.pipelined()) {
        WritePipelinedConstants(reinterpret_cast<PipelinedPatch*>(at), chain[i], chain[i + 1]);
      } else {
        WriteForwardConstants(reinterpret_cast<ForwardPatch*>(at), chain[i], chain[i + 1]);
      }
    }
  }
}

// The result area stays 0: original and word are 0 until a replica writes them.
bool PatchMessages::Encode(uint64_t m, const Operation& operation) {
  const bool flush = operation.flush || geometry_.forces_flush(m);
  const Operation::Cas& cas = operation.cas;
  const SharedWords words = WordsOf(m, operation.copy.size != 0, program_);
  std::byte* const base = message(m);
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    std::byte* const at = base + patch_offset_[i];
    const bool tail = geometry_.is_tail(i);
    const bool executes_cas = cas.present && (cas.execute_map >> i & 1) != 0;
    PatchCommon(reinterpret_cast<CommonPatch*>(at), words, operation, executes_cas, region_addr_[i],
                (m + 1) * (tail ? kTailBlocks : kDownBlocks));
    if (tail) {
      PatchTail(reinterpret_cast<TailPatch*>(at), words, m, program_);
      continue;
    }
    static_assert(offsetof(ForwardPatch, write) == offsetof(PipelinedPatch, write));
    PatchDownWrite(&reinterpret_cast<ForwardPatch*>(at)->write, m, operation.write, region_addr_[i],
                   region_addr_[i + 1]);
    if (program_.pipelined()) {
      PatchPipelined(reinterpret_cast<PipelinedPatch*>(at), words, m,
                     program_.ack_reads(geometry_.slot(m)));
    } else {
      PatchForward(reinterpret_cast<ForwardPatch*>(at), words, m, flush);
    }
  }
  const uint64_t sequence = m + 1;
  std::memcpy(base + program_.patch_bytes(0), &sequence, sizeof(sequence));
  return flush;
}

}  // namespace hyperloop
