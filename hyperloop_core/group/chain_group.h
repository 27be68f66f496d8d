// ChainGroup: the primary's end of the datapaths that forward along a chain: offload, cpu-polling
// and cpu-event. They differ in the message that goes with each operation.
//
// Cost of Post in a group of 3: the message (with offload about 60 stores to memory that was last
// used a lap ago, see patch_messages.h), then one Post of WRITE, READ (if flushed) and SEND, or
// with cpu-polling and cpu-event often of one WRITE alone, with one doorbell. An acknowledgement
// costs one compare for each replica.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "group/group_base.h"
#include "group/messages.h"
#include "group/slot_program.h"

namespace hyperloop {

class ChainGroup final : public GroupBase {
 public:
  // `messages` must be of the geometry's datapath. Only offload runs the program.
  static Result<std::unique_ptr<Group>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const GroupOptions& options,
                                               const SlotProgram& program,
                                               std::unique_ptr<Messages> messages);
  ~ChainGroup() override;

  Status Connect(std::span<const MemberInfo> chain) override;

 private:
  // A queue pair by which acknowledgements come as WRITE_IMM.
  struct AckQueue {
    std::unique_ptr<rnic::QueuePair> queue;
    Ticket newest = 0;
    uint32_t receives_consumed = 0;  // since the last replenishment
  };

  ChainGroup(rnic::Device& device, const GroupOptions& options, const SlotProgram& program,
             std::unique_ptr<Messages> messages)
      : GroupBase(device, options, program.geometry, Ordering::CopiesTake::kEachNodesOwn),
        program_(program),
        messages_(std::move(messages)) {}
  Status Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);
  Status BuildAckQueue(rnic::ProtectionDomain& pd, AckQueue* ack);
  // `peer`: the replica's end.
  Status ConnectAckQueue(AckQueue& ack, const rnic::QpAddress& peer);

  Status Post(uint64_t m, const Operation& operation) override;
  void OnCompletion(const rnic::Completion& completion) override;
  void OnCompletionsDone() override;
  Ticket remote_acked() const override;
  void Acknowledged(Ticket ticket) override { down_->Retire(last_block(ticket)); }
  void ReadResult(Ticket ticket, OperationResult* result) const override;
  std::string QueueName(uint32_t qpn) const override;
  std::string Answers() const override;
  std::string TimeoutHint() const override;

  bool pipelined() const { return program_.pipelined(); }
  Status PostPipelined(uint64_t m, const Operation& operation);
  Status PostDown(uint64_t m, std::span<const rnic::SendRequest> requests);
  // The WRITE of an operation's data, and the request that brings its message.
  rnic::Sge DataSge(const Operation& operation) const;
  void SetData(rnic::SendRequest* write, const Operation& operation, const rnic::Sge& data) const;
  rnic::Sge MessageSge(uint64_t m) const;
  static void SetMessage(rnic::SendRequest* send, const rnic::Sge& message);
  void SetRingMessage(rnic::SendRequest* write, uint64_t m,
                      std::span<const rnic::Sge> pieces) const;

  void OnLastReplica(const rnic::Completion& completion);
  // FlushOrder::kPipelined. Hop 0 leads from here to replica 0, and hop i from replica i − 1 to
  // replica i. A proof comes from the node at the hop's beginning.
  void OnFlushed();                                                    // of hop 0
  void OnProof(uint32_t replica, const rnic::Completion& completion);  // of the hop behind it
  // The newest operation that is known to be durable at the hop's end, as all before it.
  Ticket proven(uint32_t hop) const { return hop == 0 ? flushed_ : proofs_[hop - 1].newest; }
  rnic::Sge ProofHere(uint64_t m) const;
  uint64_t* proofs_here() const { return reinterpret_cast<uint64_t*>(buffer() + proofs_here_); }
  std::string WaitsFor() const;

  // Whether a WRITE_IMM came for the operation of `ticket`.
  bool IsDue(const rnic::Completion& completion, Ticket ticket) const;
  void BreakOnAck(const std::string& whose, const rnic::Completion& completion, Ticket due,
                  uint64_t sequence);
  void Replenish(AckQueue& ack);

  uint16_t& last_block(Ticket ticket) { return last_blocks_[ticket & (last_blocks_.size() - 1)]; }
  const std::byte* AckEntry(Ticket ticket) const;

  SlotProgram program_;  // its order is decided when the group connects
  const std::unique_ptr<Messages> messages_;
  MemberInfo next_;                    // the first replica
  Ticket flushed_ = 0;                 // OnFlushed
  uint16_t down_blocks_ = 0;           // blocks posted to `down_` so far; wraps
  std::vector<uint16_t> last_blocks_;  // the last block of each operation in `down_`, by ticket
  std::vector<rnic::ReceiveRequest> receive_batch_;  // half of the receives of an AckQueue
  size_t proofs_here_ = 0;  // where in buffer() the words lie that prove hop 0, one a slot

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::MemoryRegion> ack_mr_;  // the ack area, at buffer()
  std::unique_ptr<rnic::QueuePair> down_;
  std::vector<AckQueue> proofs_;  // by replica
  AckQueue ack_;                  // of the last replica
};

}  // namespace hyperloop
