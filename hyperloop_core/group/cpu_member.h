// CpuMember: a replica's end of the cpu-polling and cpu-event datapaths, which are HyperLoop's
// Naive-RDMA baselines (HyperLoop §6). The chain is the same as with offload, but this process's
// CPU takes each message, copies, CASes, makes durable and posts the next hop.
//
// The baselines are meant to be as fast as they can be. A message comes by one WRITE into a ring of
// this node (cpu_message.h), and brings the bytes of a short gWRITE along. Everything that one turn
// took goes out with one Post and one doorbell, inline where the device can, and asks for a
// completion only as often as the send ring needs room. Nothing is allocated, and no clock is read
// while messages come.
//
// Steps per message: copy it out of the ring and check it, decode (~20 compares), memcpy of what it
// carries, memcpy and CAS if it has them, `persist` for what must be durable, a check for the next
// ring, and one send request: a WRITE into that ring, or at the tail a WRITE_IMM of the result. A
// longer gWRITE has a WRITE of its own before it.
//
// cpu-polling: the thread polls the last word of the slot where the next message ends, and never
// sleeps. No message takes a receive there or completes; only now and then the thread looks at the
// completions of its own requests. One receive is posted as an alarm: if `up` fails, as it does
// when it refuses a request, nothing more will come and nothing else would tell; then that receive
// is flushed, and its completion is found at the next of those looks. After kMostIdle without a
// message it yields its processor at each turn, so that the group makes progress on a machine with
// fewer processors than polling threads. cpu-event: a thread can sleep only until a completion, so
// the WRITE of a message has an immediate. It takes a receive, which are posted a whole ring ahead
// and renewed in batches. With nothing to do the thread requests a notification for the next
// solicited receive, polls once more, and sleeps.
//
// Fail-stop: at the first error completion, bad message or failed `persist` the thread gives up,
// tells MemberOptions::failed, and resets `up`, so that the previous node's next request fails too.
// What a WRITE has left in the ring and is no whole message may be one that is still arriving; if
// it stays so for kMostTorn, it is a bad message.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "group/cpu_message.h"
#include "group/geometry.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

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

  // Serves at most kBatch messages. Returns how many messages and completions it took. After an
  // error every call returns an error.
  Result<size_t> Turn();

  // A message's bytes are placed in microseconds. The processor that does it may be taken away in
  // between, but not for so long.
  static constexpr auto kMostTorn = std::chrono::seconds(2);

 private:
  static constexpr size_t kBatch = 16;
  struct DirtyRange {
    uint64_t begin, end;
  };

  CpuMember(const MemberOptions& options, const GroupGeometry& geometry, Driver driver);
  Status Build(rnic::Device& device, rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);
  Status MakeRing(rnic::Device& device, rnic::ProtectionDomain& pd);
  bool events() const { return geometry_.datapath == Datapath::kCpuEvent; }
  Status PostReceives();

  // Each of these returns false after an error, which is in `failure_` then.
  bool Work(size_t* done);
  bool TakeFromRing(size_t* done);
  bool TakeCompletions(size_t* done);
  bool Complete(const rnic::Completion& completion);
  bool Serve();
  bool Apply();

  // The last word of the slot where the next message ends, and whether it is still that of the
  // slot's last lap.
  uint64_t LastWord() const;
  bool NothingCame(uint64_t last_word) const;
  // Whether the message that is due is in the ring; it is in `arrived_` then.
  bool MessageCame();
  // Whether what is in the ring has been no whole message for kMostTorn. Before that its rest may
  // be on its way.
  bool TornForTooLong();
  Status NotWhole(uint64_t last_word) const;
  Status Durable();
  void Forward();
  rnic::SendRequest& Add(const std::byte* at, uint32_t length);
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
  uint32_t most_inline_ = 0;  // bytes
  uint32_t slot_bytes_ = 0;
  const std::byte* slots_ = nullptr;  // of the ring
  std::byte* places_ = nullptr;       // where the message of each slot is kept, and sent on from
  uint32_t places_lkey_ = 0;
  std::byte* region_ = nullptr;
  uint64_t next_region_ = 0;  // of the next replica
  uint32_t next_region_rkey_ = 0;
  uint64_t next_addr_ = 0;  // the next replica's ring, or the primary's ack area
  uint32_t next_rkey_ = 0;
  uint64_t seed_ = 0, next_seed_ = 0;  // CpuRingSeed of this node and of the next one
  Status failure_;
  // What one Turn polls. It is a member because a local array would be zeroed each time.
  std::array<rnic::Completion, kBatch> completions_;
  CheckedMessage arrived_;
  Operation operation_;  // of that message
  uint64_t served_ = 0;  // messages
  uint32_t turns_ = 0;
  std::chrono::steady_clock::time_point torn_since_{};  // of the message that is due; 0: it is not
  uint32_t consumed_ = 0;                               // receives since the last replenishment
  std::vector<DirtyRange> dirty_;                       // written and not yet durable
  std::vector<rnic::SendRequest> outgoing_;
  std::vector<rnic::Sge> outgoing_sges_;  // one for each
  uint32_t unsignaled_ = 0;               // requests posted since one that asks for a completion
  uint32_t signaled_ = 0;                 // of those that do, how many have not completed
  uint32_t signal_interval_ = 0;          // the most of them
  rnic::Sge receive_sge_;                 // a WRITE_IMM takes a receive and leaves its SGE alone
  std::vector<rnic::ReceiveRequest> receives_;  // with events a quarter of all, else the alarm

  // Destroyed from the last to the first. The queues go before the ring's key, and both before the
  // memory.
  std::unique_ptr<rnic::Buffer> ring_;     // `up` writes there
  std::unique_ptr<rnic::Buffer> staging_;  // the messages, copied out of it; no peer reaches it
  std::unique_ptr<rnic::MemoryRegion> ring_mr_;
  std::unique_ptr<rnic::MemoryRegion> staging_mr_;
  std::unique_ptr<rnic::CompletionQueue> cq_;  // sends of down, receives of up
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> up_;

  const pid_t owner_;  // the process that the thread is in
  std::atomic<bool> stop_{false};
  UniqueFd stop_fd_;  // readable: stop (cpu-event)
  bool started_ = false;
  pthread_t thread_{};
};

}  // namespace hyperloop
