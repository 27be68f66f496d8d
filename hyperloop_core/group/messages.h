// Messages: what the primary of a chain sends beside the data. Each slot has one place for its
// message, in registered memory from which the device sends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "group/geometry.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class Messages {
 public:
  virtual ~Messages() = default;

  // The memory that the places of all slots take, in bytes.
  size_t memory_bytes() const { return geometry_.slots * stride_; }
  // Lays the places out in `memory`: memory_bytes() zeroed bytes, 64 B aligned, which outlive this
  // object. Once, before every call below. `primary` and `chain` were checked against the geometry.
  void PlaceIn(std::byte* memory, const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
    memory_ = memory;
    WriteConstants(primary, chain);
  }

  // Completes the message of operation number `m`. Operations come in order, from 0, `operation`
  // was checked, and nobody needs the place's previous message any more. Returns whether the
  // primary and the hops flush what they wrote with a READ.
  virtual bool Encode(uint64_t m, const Operation& operation) = 0;

  // Prefetches the place of operation `m` for writing, ahead of its Encode. The device read the
  // place a lap ago, so its cache lines are shared with another core. Without the prefetch Encode's
  // stores would wait for the lines, and the doorbell would wait behind the stores.
  void Prefetch(uint64_t m) const {
    for (const std::byte *at = message(m), *end = at + message_bytes_; at < end; at += 64) {
#if defined(__x86_64__)
      asm volatile("prefetchw %0" : : "m"(*at));
#else
      __builtin_prefetch(at, 1);
#endif
    }
  }

  std::byte* message(uint64_t m) const { return memory_ + size_t{geometry_.slot(m)} * stride_; }
  // Known once the places are laid out.
  uint32_t message_bytes() const { return message_bytes_; }

 protected:
  Messages(const GroupGeometry& geometry, uint32_t message_bytes)
      : geometry_(geometry),
        stride_((size_t{message_bytes} + 63) / 64 * 64),
        message_bytes_(message_bytes) {}

  // At most what the constructor was given. WriteConstants may call it.
  void set_message_bytes(uint32_t bytes) { message_bytes_ = bytes; }
  // Writes what never changes into the places.
  virtual void WriteConstants(const PrimaryInfo& primary, std::span<const MemberInfo> chain) = 0;

  const GroupGeometry geometry_;
  const size_t stride_;

 private:
  uint32_t message_bytes_;
  std::byte* memory_ = nullptr;
};

}  // namespace hyperloop
