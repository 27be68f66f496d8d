// Messages: what the primary of a chain sends beside the data, one place a slot, in registered
// memory from which it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class Messages {
 public:
  virtual ~Messages() = default;

  // Completes the message of operation number `m` (from 0, in order); returns whether the hops, and
  // so the primary, flush what they wrote by a READ. `operation` was checked. The place's previous
  // message must not be needed any more.
  virtual bool Encode(uint64_t m, const Operation& operation) = 0;

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

 protected:
  // `memory`: 64 B aligned, outlives the object.
  Messages(const SlotProgram& program, uint32_t message_bytes, std::byte* memory)
      : program_(program),
        memory_(memory),
        stride_(Stride(message_bytes)),
        message_bytes_(message_bytes) {}
  static size_t Stride(uint32_t message_bytes) { return (message_bytes + 63) / 64 * 64; }

  const SlotProgram program_;
  std::byte* const memory_;
  const size_t stride_;
  const uint32_t message_bytes_;

  friend size_t MessageBytes(const SlotProgram& program);
};

// Those of `program.datapath`: bytes of memory that they need, and the messages, with what never
// changes written into `memory`. `chain` and `primary` were checked against `program`.
size_t MessageBytes(const SlotProgram& program);
std::unique_ptr<Messages> MakeMessages(const SlotProgram& program, const PrimaryInfo& primary,
                                       std::span<const MemberInfo> chain, std::byte* memory);

}  // namespace hyperloop
