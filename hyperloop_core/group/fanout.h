// The fanout datapath: the primary writes, flushes and CASes each replica itself, by one-sided
// operations on one queue pair for each replica. It needs nothing but the verbs of any RC device,
// and no replica's CPU.
//
// On each queue, in this order: WRITE of the gWRITE's bytes; WRITE of the copy's source bytes, as
// the primary has them, to its destination; CAS where the execute map says so; READ, which flushes
// what the queue wrote. A responder executes the requests of a queue in order, so nothing is
// fenced: a READ's answer shows what came before it in place and durable. The last request is
// signaled; an operation is acknowledged when every replica's queue has completed it.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "group/group_base.h"

namespace hyperloop {

class FanoutGroup final : public GroupBase {
 public:
  static Result<std::unique_ptr<Group>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const GroupOptions& options,
                                               const GroupGeometry& geometry);
  ~FanoutGroup() override;

  Status Connect(std::span<const MemberInfo> replicas) override;

 private:
  using GroupBase::GroupBase;
  Status Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);

  // Posts, for each replica, 1 to 4 requests with one doorbell.
  Status Post(uint64_t m, const Operation& operation) override;
  Status PostTo(uint32_t replica, uint64_t m, const Operation& operation);
  void OnCompletion(const rnic::Completion& completion) override;
  Ticket remote_acked() const override;
  uint64_t CompletionsUntil(Ticket ticket) const override;
  void ReadResult(Ticket ticket, OperationResult* result) const override;
  std::string QueueName(uint32_t qpn) const override;
  std::string Answers() const override;
  std::string TimeoutHint() const override;

  uint64_t& original(Ticket ticket, uint32_t replica) const;

  struct Replica {
    uint64_t region_addr = 0;
    uint32_t region_rkey = 0;
    uint32_t qpn = 0;
    Ticket done = 0;  // completed by this replica
  };
  std::array<Replica, kMaxGroupSize> replicas_{};
  std::array<std::unique_ptr<rnic::QueuePair>, kMaxGroupSize> queues_;
};

// A replica's end: one queue pair that only answers.
class FanoutMember final : public Member {
 public:
  static Result<std::unique_ptr<Member>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                rnic::MemoryRegion& region, uint32_t position,
                                                const GroupGeometry& geometry);
  ~FanoutMember() override;

  const MemberInfo& info() const override { return info_; }
  Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) override;

 private:
  explicit FanoutMember(const GroupGeometry& geometry) : geometry_(geometry) {}

  const GroupGeometry geometry_;
  MemberInfo info_;
  bool connected_ = false;
  std::unique_ptr<rnic::CompletionQueue> cq_;  // nothing completes here
  std::unique_ptr<rnic::QueuePair> up_;
};

}  // namespace hyperloop
