// PatchMessages: the messages of the offload datapath, which patch the replicas' queues.
//
// What never changes (queue numbers, keys, fences, sizes) is written into every place at set-up, in
// ring byte order. An operation stores only what differs.
//
// Steps of Encode and their cost in a group of 3: it computes some 16 words once, because the
// wqe_index and opcode of each WQE are the same on all replicas. Then it stores 12 to 16 words of
// 4 B for each replica. Each part of the operation takes 2 to 4 words more, because its addresses
// differ by the node's base. These are about 60 stores to 1 KB that was last used a lap ago.
// Branches depend only on which parts the operation has.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "group/messages.h"
#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class PatchMessages final : public Messages {
 public:
  explicit PatchMessages(const SlotProgram& program);

  bool Encode(uint64_t m, const Operation& operation) override;

 private:
  void WriteConstants(const PrimaryInfo& primary, std::span<const MemberInfo> chain) override;
  template <class Parts, class Forwarding>
  void WriteConstantsAs(uint32_t slot, const PrimaryInfo& primary,
                        std::span<const MemberInfo> chain);
  template <class Parts, class Forwarding>
  void EncodeAs(std::byte* base, uint64_t m, const Operation& operation, bool flush);

  SlotProgram program_;
  std::array<uint64_t, kMaxGroupSize> region_addr_{};
  std::array<uint32_t, kMaxGroupSize> patch_offset_{};
};

}  // namespace hyperloop
