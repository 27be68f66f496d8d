// GroupBase: the base class of the primary's end of every datapath. It checks operations, gives out
// tickets within the window, keeps the ordering rule, bounds waits by ack_timeout, runs the
// primary's own copies, and stops at the first failure. A derived class adds how an operation is
// posted and how its acknowledgement is recognised. This class never asks which datapath it serves.
//
// Steps of Submit and their cost when it need not wait: range checks, ~10 compares; ordering check
// against two bounding footprints, ~12 compares; the datapath's Post; with a copy one Post of WRITE
// and READ on the loopback queue; one reading of the clock; some 40 B of book-keeping. No
// allocation, no lock, no system call.
//
// Steps of a wait: Poll of the one completion queue (a load of a cache line while nothing arrives),
// then the datapath's OnCompletion for each completion. Every kCheckInterval turns the wait looks
// at the clock and at whether the device is alive. After kYieldAfter without progress it yields the
// processor at each turn. With kEvent, or later with kHybrid: a doorbell that asks for an
// event, one more Poll, poll(2), a read of the event.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "group/geometry.h"
#include "group/ordering.h"
#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

class GroupBase : public Group {
 public:
  const PrimaryInfo& info() const override { return info_; }
  Result<Ticket> Submit(const Operation& operation) override;
  Result<Ticket> TrySubmit(const Operation& operation) override;
  Status Wait(Ticket ticket, OperationResult* result) override;
  Status WaitAll() override;
  Result<Ticket> Poll() override;
  Status status() const override { return broken_; }
  uint32_t group_size() const override { return geometry_.group_size; }
  uint64_t region_size() const override { return region_size_; }
  Status Lock(uint64_t offset, uint64_t expected, uint64_t desired) override;

 protected:
  GroupBase(rnic::Device& device, const GroupOptions& options, const GroupGeometry& geometry,
            Ordering::CopiesTake copies_take);
  // Makes memory, completion queue and loopback queue. The datapath gets `bytes` of memory at
  // buffer(), registered for this node's RNIC alone. `completions`: how many the datapath's own
  // queues may have outstanding at once.
  Status BuildCommon(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region, size_t bytes,
                     uint32_t completions);
  Status ConnectLoopback();
  // The attributes of every queue pair here: on cq_, without receives, and with a transport timeout
  // below ack_timeout.
  rnic::QpAttr QueueAttr(uint32_t send_wqebbs) const;

  // --- the datapath
  // Starts operation number `m` (ticket m + 1) at the replicas. A failure breaks the group.
  virtual Status Post(uint64_t m, const Operation& operation) = 0;
  // Called for each successful completion of the datapath's queues.
  virtual void OnCompletion(const rnic::Completion& completion) = 0;
  // Called once after a series of OnCompletion calls.
  virtual void OnCompletionsDone() {}
  // All replicas have acknowledged up to and including this ticket.
  virtual Ticket remote_acked() const = 0;
  // How many more completions come, at least, before remote_acked() reaches `ticket`, which it has
  // not: 1 or more.
  virtual uint64_t CompletionsUntil(Ticket) const { return 1; }
  virtual void Acknowledged(Ticket) {}
  virtual void ReadResult(Ticket ticket, OperationResult* result) const = 0;
  virtual std::string QueueName(uint32_t qpn) const = 0;
  // For error texts: what the replicas have answered, and why they may not answer.
  virtual std::string Answers() const = 0;
  virtual std::string TimeoutHint() const = 0;

  void Break(Status status);
  // True in a forked child, where the memory of messages and results is not mapped.
  bool forked() const { return !fork_detector_->IsOwner(); }
  Status ForkedStatus() const;
  std::string Progress() const;
  // "replica 1 (127.0.0.1:7002)": the number, and GroupOptions::replica_names' word for it.
  std::string NameOf(uint32_t replica) const;
  std::byte* buffer() const { return buffer_->data(); }
  const rnic::MemoryRegion& buffer_mr() const { return *buffer_mr_; }

  rnic::Device& device_;
  const GroupOptions options_;
  const GroupGeometry geometry_;
  PrimaryInfo info_;
  bool connected_ = false;
  uint64_t region_addr_ = 0;
  uint32_t region_lkey_ = 0, region_rkey_ = 0;
  rnic::Sge sink_;  // where flush READs put what they read
  Status broken_;
  Ticket submitted_ = 0;

 private:
  using Clock = std::chrono::steady_clock;

  struct Pending {  // of an unacknowledged operation, by ticket
    Clock::time_point submitted;
    uint64_t copies = 0;  // copies posted here up to and including this operation's
  };

  // The newest ticket that must be acknowledged before `operation` may start. 0: none.
  Ticket Blocker(const Operation& operation) const;
  Result<Ticket> Start(const Operation& operation);
  Status PostCopy(const Operation::Copy& copy);
  // Processes all completions that have come.
  void Drain();
  void BreakOn(const rnic::Completion& completion);
  void AdvanceAcknowledged();
  // Each of these waits until `ticket` is acknowledged or the group is broken.
  Status WaitFor(Ticket ticket);
  // OK after `time`, too.
  Status PollFor(Ticket ticket, std::chrono::nanoseconds time);
  Status SleepFor(Ticket ticket);
  // Whether WaitMode::kHybrid polls this time.
  bool PollingPays();
  Status RequestNotifyOf(Ticket ticket);
  // Sleeps until a completion may have come, for a bounded time.
  void SleepUntilEvent();
  // What a waiting loop checks now and then: the device, GroupOptions::watch and ack_timeout. Each
  // may break the group. `waits_for` is for the error text.
  void CheckWaiting(Ticket waits_for);
  // CheckWaiting at every kCheckInterval-th call, for callers that wait by calling Poll or
  // TrySubmit over and over.
  void LookNowAndThen();

  std::unique_ptr<ForkDetector> fork_detector_;
  uint64_t region_size_ = 0;
  Ticket acknowledged_ = 0;  // the newest that all replicas acknowledged and this node copied
  uint64_t copies_posted_ = 0, copies_done_ = 0;
  uint32_t looks_ = 0;
  uint32_t vain_polls_ = 0;  // in a row, of WaitMode::kHybrid
  uint32_t waits_without_poll_ = 0;
  // What one Poll brings. It is a member because a local array would be zeroed each time.
  std::array<rnic::Completion, 16> completions_;
  Ordering ordering_;
  std::vector<Pending> pending_;  // by ticket & pending_mask_
  uint64_t pending_mask_ = 0;

  std::unique_ptr<rnic::Buffer> buffer_;
  std::unique_ptr<rnic::MemoryRegion> buffer_mr_;

 protected:
  // Destroyed from the last to the first, after the datapath's queues.
  std::unique_ptr<rnic::CompletionQueue> cq_;  // of everything here
  std::unique_ptr<rnic::QueuePair> local_;     // loopback, for the primary's copies
};

}  // namespace hyperloop
