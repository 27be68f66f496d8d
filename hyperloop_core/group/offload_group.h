// OffloadGroup: the primary's end of the offload datapath.
//
// Steps of Submit and their cost (group of 3, nothing to wait for): range checks, ~10 compares;
// ordering check against two bounding footprints, ~12 compares; message: about 60 stores into
// memory of the last lap (message_ring.h); one Post of WRITE, READ (if flushed) and SEND with one
// doorbell; with a copy a second Post of WRITE and READ on the loopback queue; one reading of the
// clock; some 40 B of book-keeping. No allocation, no lock, no system call. Steps of a wait: Poll
// of the one completion queue (a load of a cache line while nothing arrives), then per
// acknowledgement one compare for each replica; the clock and the device's liveness are looked at
// every kCheckInterval turns, and after kYieldAfter without progress the processor is offered to
// others.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "group/message_ring.h"
#include "group/ordering.h"
#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class OffloadGroup final : public Group {
 public:
  static Result<std::unique_ptr<Group>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const GroupOptions& options,
                                               const SlotProgram& program);
  ~OffloadGroup() override;

  const PrimaryInfo& info() const override { return info_; }
  Status Connect(std::span<const MemberInfo> chain) override;
  Result<Ticket> Submit(const Operation& operation) override;
  Result<Ticket> TrySubmit(const Operation& operation) override;
  Status Wait(Ticket ticket, OperationResult* result) override;
  Status WaitAll() override;
  Result<Ticket> Poll() override;
  Status status() const override { return broken_; }
  uint32_t group_size() const override { return program_.group_size; }
  uint64_t region_size() const override { return info_region_size_; }
  Status Lock(uint64_t offset, uint64_t expected, uint64_t desired) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {  // of an unacknowledged operation, by ticket
    Clock::time_point submitted;
    uint64_t copies = 0;      // copies posted here up to and including this operation's
    uint16_t last_block = 0;  // of its WQEs in down's ring
  };

  OffloadGroup(rnic::Device& device, const GroupOptions& options, const SlotProgram& program);
  Status Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);

  Status Check(const Operation& operation) const;
  Status CheckRange(const char* what, uint64_t offset, uint64_t size) const;
  // The newest ticket that must be acknowledged before `operation` may start; 0: none.
  Ticket Blocker(const Operation& operation) const;
  Result<Ticket> Start(const Operation& operation);
  Status PostDown(uint64_t m, const Operation& operation, bool flush);
  Status PostCopy(const Operation::Copy& copy);

  // Takes in all completions there are.
  void Drain();
  void TakeAck(const rnic::Completion& completion);
  void BreakOn(const rnic::Completion& completion);
  void AdvanceAcknowledged();
  void ReplenishReceives();
  // Until `ticket` is acknowledged or the group is broken.
  Status WaitFor(Ticket ticket);
  // What a waiting loop looks at now and then. `waits_for`: for the text.
  void CheckWaiting(Ticket waits_for);
  // The same for callers that wait by calling Poll or TrySubmit over and over: at every
  // kCheckInterval-th call.
  void LookNowAndThen();
  void Break(Status status);
  std::string Progress() const;

  rnic::Device& device_;
  const GroupOptions options_;
  const SlotProgram program_;
  PrimaryInfo info_;
  bool connected_ = false;
  uint64_t info_region_size_ = 0;
  uint64_t region_addr_ = 0;
  uint32_t region_lkey_ = 0, region_rkey_ = 0;
  uint64_t next_addr_ = 0;  // the first replica's region
  uint32_t next_rkey_ = 0;

  Status broken_;
  Ticket submitted_ = 0;
  Ticket remote_acked_ = 0;  // by the last replica
  Ticket acknowledged_ = 0;  // that, and the copies here
  uint64_t copies_posted_ = 0, copies_done_ = 0;
  uint16_t down_blocks_ = 0;        // posted to down, free running
  uint32_t receives_consumed_ = 0;  // since the last replenishment
  uint32_t looks_ = 0;
  Ordering ordering_;
  std::vector<Pending> pending_;  // by ticket & pending_mask_
  uint64_t pending_mask_ = 0;
  std::vector<rnic::ReceiveRequest> receive_batch_;

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::Buffer> buffer_;  // ack area, message ring, sink
  std::unique_ptr<rnic::MemoryRegion> buffer_mr_;
  const std::byte* ack_area_ = nullptr;
  rnic::Sge sink_;
  std::unique_ptr<MessageRing> messages_;
  std::unique_ptr<rnic::CompletionQueue> cq_;  // of everything here
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> ack_;
  std::unique_ptr<rnic::QueuePair> local_;
};

}  // namespace hyperloop
