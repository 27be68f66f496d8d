// CpuMember: a replica's end of the cpu-polling and cpu-event datapaths, which are HyperLoop's
// Naive-RDMA baselines (HyperLoop §6). The chain is the same as with offload, but this process's
// CPU takes each message, copies, CASes, makes durable and posts the next hop.
//
// The baselines are meant to be as fast as they can be. Receives are posted a whole ring ahead and
// renewed in batches. A message is received into the buffer from which it is forwarded. Everything
// that one poll brought goes out with one Post and one doorbell, and asks for a completion only as
// often as the ring needs room. Nothing is allocated, and no clock is read while messages come.
//
// Steps per message: decode and check (~20 compares), memcpy and CAS if it has them, `persist` for
// what must be durable, two send requests (WRITE, SEND; at the tail one WRITE_IMM).
//
// cpu-polling: the thread polls and never sleeps. After kMostIdle without a message it yields its
// processor at each turn, so that the group makes progress on a machine with fewer processors than
// polling threads. cpu-event: with nothing to do the thread requests a notification for the next
// solicited receive, polls once more, and sleeps.
//
// Fail-stop: at the first error completion, bad message or failed `persist` the thread gives up,
// tells MemberOptions::failed, and resets `up`, so that the previous node's next request fails too.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "group/geometry.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

struct CpuMessage;

class CpuMember final : public Member {
 public:
  // kThread: the member has a thread, from Connect to its destruction. kCaller: the owner calls
  // Turn, as in tests that step everything by hand.
  enum class Driver : uint8_t { kThread, kCaller };
  static Result<std::unique_ptr<Member>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                rnic::MemoryRegion& region,
                                                const MemberOptions& options,
                                                const GroupGeometry& geometry, Driver driver);
  ~CpuMember() override;

  const MemberInfo& info() const override { return info_; }
  Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) override;

  // Processes at most kBatch completions, and serves the messages that they bring. Returns how many
  // it processed. After an error every call returns an error.
  Result<size_t> Turn();

 private:
  static constexpr size_t kBatch = 16;
  struct DirtyRange {
    uint64_t begin, end;
  };

  CpuMember(const MemberOptions& options, const GroupGeometry& geometry, Driver driver);
  Status Build(rnic::Device& device, rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);
  rnic::Sge Place(uint32_t slot, uint32_t offset, uint32_t length) const;
  CpuMessage* MessageAt(uint32_t slot) const;
  Status PostReceives(uint32_t first, uint32_t count);

  Status Serve(const rnic::Completion& completion);
  Status Apply(const Operation& operation, CpuMessage* message);
  Status Durable(const Operation& operation);
  void Forward(uint64_t m, const Operation& operation);
  rnic::SendRequest& Add(const rnic::Sge& sge);
  // Posts all of `outgoing_`, or none of it if the ring has no room.
  Status PostOutgoing();

  Status StartThread();
  void EndThread();
  void Run();
  bool Sleep();  // for cpu-event; false: an error, after which the thread ends
  void Fail(const Status& status);

  const MemberOptions options_;
  const GroupGeometry geometry_;
  const Driver driver_;
  MemberInfo info_;
  bool connected_ = false;
  bool inline_messages_ = false;
  std::byte* region_ = nullptr;
  uint64_t next_addr_ = 0;  // the next node's region, or the primary's ack area
  uint32_t next_rkey_ = 0;
  Status failure_;
  // What one Turn polls. It is a member because a local array would be zeroed each time.
  std::array<rnic::Completion, kBatch> completions_;
  uint64_t served_ = 0;            // messages
  uint32_t consumed_ = 0;          // receives since the last replenishment
  std::vector<DirtyRange> dirty_;  // written and not yet durable
  std::vector<rnic::SendRequest> outgoing_;
  std::vector<rnic::Sge> outgoing_sges_;  // one for each
  uint32_t unsignaled_ = 0;               // requests added since one that asks for a completion
  uint32_t signal_interval_ = 0;          // the most of them
  std::vector<rnic::Sge> receive_sges_;
  std::vector<rnic::ReceiveRequest> receives_;

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::Buffer> staging_;
  std::unique_ptr<rnic::MemoryRegion> staging_mr_;
  std::unique_ptr<rnic::CompletionQueue> cq_;  // receives of up, sends of down
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> up_;

  const pid_t owner_;  // the process that the thread is in
  std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;  // readable: stop (cpu-event)
  bool started_ = false;
  pthread_t thread_{};
};

}  // namespace hyperloop
