// OffloadMember: a replica's end of the offload datapath. It sets up the slot program and starts
// it; from then on its RNIC alone serves the group.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class OffloadMember final : public Member {
 public:
  // As Member::Create, for a program made by the caller.
  static Result<std::unique_ptr<Member>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                rnic::MemoryRegion& region, uint32_t position,
                                                const SlotProgram& program);
  ~OffloadMember() override;

  const MemberInfo& info() const override { return info_; }
  Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) override;

 private:
  OffloadMember(uint32_t position, const SlotProgram& program)
      : position_(position), program_(program) {}

  Status Build(rnic::Device& device, rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);
  // Ring set-up, all for the first lap. `primary` and `chain` were checked.
  void WriteUpRing();
  void WriteLocalRing();
  void WriteForwardRing(const MemberInfo& next);
  void WriteTailRing(const PrimaryInfo& primary);
  Status PostReceives();

  std::byte* Block(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks,
                   uint32_t block) const;
  // An SGE over the first `length` bytes of block `block` of slot `slot`.
  rnic::Sge Span(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks, uint32_t block,
                 uint32_t length) const;
  rnic::Sge Staging(uint32_t slot, uint32_t offset, uint32_t length) const;
  rnic::Sge Original(uint32_t slot) const;
  rnic::Sge Sink() const;  // where flush READs put what they read

  const uint32_t position_;
  const SlotProgram program_;
  const GroupGeometry& geometry_ = program_.geometry;
  MemberInfo info_;
  bool connected_ = false;

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::Buffer> staging_;
  std::unique_ptr<rnic::MemoryRegion> staging_mr_;
  std::unique_ptr<rnic::CompletionQueue> receive_cq_;  // what up's WAITs count, and nothing else
  // Takes the error CQEs of all three send queues. Nobody counts or polls them.
  std::unique_ptr<rnic::CompletionQueue> error_cq_;
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> local_;
  std::unique_ptr<rnic::QueuePair> up_;
  rnic::RawQueues up_queues_, local_queues_, down_queues_;
};

}  // namespace hyperloop
