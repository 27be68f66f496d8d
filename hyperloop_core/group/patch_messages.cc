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

}  // namespace

PatchMessages::PatchMessages(const SlotProgram& program)
    : Messages(program.geometry, program.message_bytes(0)), program_(program) {
  for (uint32_t i = 0; i < geometry_.group_size; ++i) patch_offset_[i] = program.patch_offset(i);
}

void PatchMessages::WriteConstants(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  for (uint32_t i = 0; i < geometry_.group_size; ++i) region_addr_[i] = chain[i].region_addr;
  for (uint32_t s = 0; s < geometry_.slots; ++s) WriteConstantsOf(s, primary, chain);
}

// The result area stays 0: original and word are 0 until a replica writes them.
void PatchMessages::WriteConstantsOf(uint32_t slot, const PrimaryInfo& primary,
                                     std::span<const MemberInfo> chain) const {
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    const MemberInfo& member = chain[i];
    std::byte* at = message(slot) + patch_offset_[i];
    WriteCommonConstants(reinterpret_cast<CommonPatch*>(at), member);
    if (!geometry_.is_tail(i)) {
      auto* patch = reinterpret_cast<ForwardPatch*>(at);
      Scratch scratch;
      EncodeDownWrite(scratch.wqe, member.down_qpn, member, chain[i + 1]);
      CopyHead(&patch->write, scratch.wqe);
      SetEnableConstants(&patch->enable_up, PlainControl(member.down_qpn));
      continue;
    }
    auto* patch = reinterpret_cast<TailPatch*>(at);
    if (SlotProgram::tail_enables(slot)) {
      SetEnableConstants(&patch->follow, FencedControl(member.down_qpn));
    } else {
      Scratch scratch;
      EncodeTailRead(scratch.wqe, member.down_qpn, primary, {primary.ack_addr, kFlushReadBytes, 0});
      CopyHead(&patch->follow, scratch.wqe);
    }
  }
}

bool PatchMessages::Encode(uint64_t m, const Operation& operation) {
  const bool flush = operation.flush || geometry_.forces_flush(m);
  std::byte* const base = message(m);
  const Operation::Copy& copy = operation.copy;
  const Operation::Cas& cas = operation.cas;
  const bool has_copy = copy.size != 0;
  const bool has_write = operation.write.size != 0;
  const bool tail_enables = SlotProgram::tail_enables(geometry_.slot(m));

  // These words are the same on every replica.
  const uint64_t local = m * kLocalBlocks;
  const uint64_t down = m * kDownBlocks;
  const uint64_t tail = m * kTailBlocks;
  const uint64_t rearmed = program_.rearmed(m);
  const uint64_t up = rearmed * kUpBlocks;
  const uint32_t copy_word = Word0(local + kLocalCopy, has_copy ? rnic::kWqeWrite : rnic::kWqeNop);
  const uint32_t cas_word = Word0(local + kLocalCas, rnic::kWqeCompareSwap);
  const uint32_t no_cas_word = Word0(local + kLocalCas, rnic::kWqeNop);
  const uint32_t read_word = Word0(local + kLocalRead, rnic::kWqeRead);
  const uint32_t enable_down_word = Word0(local + kLocalEnableDown, rnic::kWqeSendEnable);
  const uint32_t wait_word = Word0(up + kUpWait, rnic::kWqeWait);
  const uint32_t wait_index = RingIndex(rearmed, rnic::kWaitIndexMask);
  const uint32_t enable_local_word = Word0(up + kUpEnableLocal, rnic::kWqeSendEnable);
  const uint32_t enable_local_index = RingIndex((rearmed + 1) * kLocalBlocks, 0xffff);
  const uint32_t enable_up_index = RingIndex((rearmed + 1) * kUpBlocks, 0xffff);
  const uint32_t receive_counter = RingIndex(m + geometry_.slots, 0xffff);

  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    std::byte* const at = base + patch_offset_[i];
    const uint64_t region = region_addr_[i];
    auto* common = reinterpret_cast<CommonPatch*>(at);
    if (has_copy) {
      SetWrite(&common->copy, copy_word, region + copy.destination,
               static_cast<uint32_t>(copy.size), region + copy.source);
    } else {
      common->copy.control.opmod_idx_opcode = copy_word;
    }
    if (cas.present && (cas.execute_map >> i & 1) != 0) {
      common->cas.control.opmod_idx_opcode = cas_word;
      common->cas.remote.raddr = htobe64(region + cas.offset);
      common->cas.operands.swap_add = htobe64(cas.desired);
      common->cas.operands.compare = htobe64(cas.expected);
    } else {
      common->cas.control.opmod_idx_opcode = no_cas_word;
    }
    common->read.word0 = read_word;
    SetEnable(&common->wait, wait_word, wait_index);
    SetEnable(&common->enable_local, enable_local_word, enable_local_index);
    if (!geometry_.is_tail(i)) {
      auto* patch = reinterpret_cast<ForwardPatch*>(at);
      SetEnable(&common->enable_down, enable_down_word, RingIndex(down + kDownBlocks, 0xffff));
      if (has_write) {
        SetWrite(&patch->write, Word0(down + kDownWrite, rnic::kWqeWrite),
                 region_addr_[i + 1] + operation.write.offset,
                 static_cast<uint32_t>(operation.write.size), region + operation.write.offset);
      } else {
        patch->write.control.opmod_idx_opcode = Word0(down + kDownWrite, rnic::kWqeNop);
      }
      patch->flush.word0 = Word0(down + kDownFlush, flush ? rnic::kWqeRead : rnic::kWqeNop);
      patch->send.word0 = Word0(down + kDownSend, rnic::kWqeSend);
      SetEnable(&patch->enable_up, Word0(down + kDownEnableUp, rnic::kWqeSendEnable),
                enable_up_index);
      patch->receive_counter = receive_counter;
      continue;
    }
    auto* patch = reinterpret_cast<TailPatch*>(at);
    SetEnable(&common->enable_down, enable_down_word, RingIndex(tail + kTailBlocks, 0xffff));
    patch->ack.word0 = Word0(tail + kTailAck, rnic::kWqeWriteImm);
    if (tail_enables) {
      SetEnable(&patch->follow, Word0(tail + kTailFollow, rnic::kWqeSendEnable), enable_up_index);
    } else {
      patch->follow.control.opmod_idx_opcode = Word0(tail + kTailFollow, rnic::kWqeRead);
    }
    patch->receive_counter = receive_counter;
  }
  const uint64_t sequence = m + 1;
  std::memcpy(base + program_.patch_bytes(0), &sequence, sizeof(sequence));
  return flush;
}

}  // namespace hyperloop
