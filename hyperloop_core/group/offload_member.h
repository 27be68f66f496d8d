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
  void WritePipelinedRing(const MemberInfo& next);
  void WriteAckRing(const PrimaryInfo& primary);
  void WriteTailRing(const PrimaryInfo& primary);
  Status PostReceives();
  // Each appends where slot `slot`'s RECV puts the parts of the patch, in their order.
  template <class Part>
  void AddPart(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks, uint32_t block,
               std::vector<rnic::Sge>* places) const;
  template <class Parts>
  void AddCommonPlaces(uint32_t slot, std::vector<rnic::Sge>* places) const;
  void AddForwardPlaces(uint32_t slot, std::vector<rnic::Sge>* places) const;
  void AddPipelinedPlaces(uint32_t slot, std::vector<rnic::Sge>* places) const;
  template <class Parts>
  void AddTailPlaces(uint32_t slot, std::vector<rnic::Sge>* places) const;
  // And where it puts the receive counter and everything behind the patch.
  void AddStagingPlaces(uint32_t slot, std::vector<rnic::Sge>* places) const;

  // The SEND that forwards slot `slot`'s message to the next node.
  void EncodeForward(uint32_t slot, std::byte* wqe, const rnic::WqeControl& control) const;

  std::byte* Block(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks,
                   uint32_t block) const;
  rnic::Sge Staging(uint32_t slot, uint32_t offset, uint32_t length) const;
  rnic::Sge Original(uint32_t slot) const;
  rnic::Sge Sink() const;                // where flush READs put what they read
  rnic::Sge Proof(uint32_t slot) const;  // the same of slot `slot`, with FlushOrder::kPipelined

  const uint32_t position_;
  SlotProgram program_;  // its order is decided when the member connects
  const GroupGeometry& geometry_ = program_.geometry;
  MemberInfo info_;
  bool connected_ = false;

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::Buffer> staging_;
  std::unique_ptr<rnic::MemoryRegion> staging_mr_;
  std::unique_ptr<rnic::CompletionQueue> receive_cq_;  // what up's WAITs count, and nothing else
  // Takes the error CQEs of the send queues but `down`. Nobody counts or polls them.
  std::unique_ptr<rnic::CompletionQueue> error_cq_;
  std::unique_ptr<rnic::CompletionQueue> flush_cq_;  // of `down`: its flushes and its errors
  std::unique_ptr<rnic::QueuePair> ack_;             // not at the last replica
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> local_;
  std::unique_ptr<rnic::QueuePair> up_;
  rnic::RawQueues up_queues_, local_queues_, down_queues_, ack_queues_;
};

}  // namespace hyperloop
