// MessageRing: the primary's metadata messages, one place a slot, in registered memory from which
// they are sent.
//
// What never changes (queue numbers, keys, fences, sizes) is written into every place at set-up, in
// ring byte order; an operation only stores what it brings. Steps of Encode and their cost, group
// of 3: some 16 words computed once (wqe_index and opcode of each WQE are the same on all
// replicas), then per replica 12 to 16 stores of 4 B, and for each part that is there 2 to 4 more
// (addresses differ by the node's base). About 60 stores to 1 KB that was last used a lap ago; no
// branch depends on anything but which parts are there.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class MessageRing {
 public:
  // Bytes of memory that `program` needs.
  static size_t Bytes(const SlotProgram& program);

  // Writes the constant parts into `memory` (64 B aligned, of at least Bytes), which outlives the
  // ring. `chain` and `primary` were checked against `program`.
  MessageRing(const SlotProgram& program, const PrimaryInfo& primary,
              std::span<const MemberInfo> chain, std::byte* memory);

  // Completes the message of operation number `m` (from 0, in order). `flush`: whether the hops
  // READ. `operation` was checked. The place's previous message must not be needed any more.
  void Encode(uint64_t m, const Operation& operation, bool flush);

  // Asks for the place of operation `m` ahead of its Encode: the device read it a lap ago, so that
  // its lines are shared with another core, and Encode's stores would hold up the doorbell behind
  // them until they are back.
  void Prefetch(uint64_t m) const {
    for (const std::byte *at = message(m), *end = at + message_bytes_; at < end; at += 64) {
#if defined(__x86_64__)
      asm volatile("prefetchw %0" : : "m"(*at));
#else
      __builtin_prefetch(at, 1);
#endif
    }
  }

  std::byte* message(uint64_t m) const { return memory_ + size_t{program_.slot(m)} * stride_; }
  uint32_t message_bytes() const { return message_bytes_; }

 private:
  void WriteConstants(std::byte* message, uint32_t slot, const PrimaryInfo& primary,
                      std::span<const MemberInfo> chain) const;

  const SlotProgram program_;
  std::byte* const memory_;
  const size_t stride_;
  const uint32_t message_bytes_;
  std::array<uint64_t, kMaxGroupSize> region_addr_{};
  std::array<uint32_t, kMaxGroupSize> patch_offset_{};
};

}  // namespace hyperloop
