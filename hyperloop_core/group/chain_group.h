// ChainGroup: the primary's end of the datapaths that forward along a chain: offload, cpu-polling
// and cpu-event. They differ in the message that goes with each operation.
//
// Cost of Post in a group of 3: the message (with offload about 60 stores to memory that was last
// used a lap ago, see patch_messages.h), then one Post of WRITE, READ (if flushed) and SEND with
// one doorbell. An acknowledgement costs one compare for each replica.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "group/group_base.h"
#include "group/messages.h"

namespace hyperloop {

class ChainGroup final : public GroupBase {
 public:
  // `messages` must be of the geometry's datapath.
  static Result<std::unique_ptr<Group>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const GroupOptions& options,
                                               const GroupGeometry& geometry,
                                               std::unique_ptr<Messages> messages);
  ~ChainGroup() override;

  Status Connect(std::span<const MemberInfo> chain) override;

 private:
  ChainGroup(rnic::Device& device, const GroupOptions& options, const GroupGeometry& geometry,
             std::unique_ptr<Messages> messages)
      : GroupBase(device, options, geometry, Ordering::CopiesTake::kEachNodesOwn),
        messages_(std::move(messages)) {}
  Status Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region);

  Status Post(uint64_t m, const Operation& operation) override;
  void OnCompletion(const rnic::Completion& completion) override;
  void OnCompletionsDone() override;
  Ticket remote_acked() const override { return remote_acked_; }
  void Acknowledged(Ticket ticket) override { down_->Retire(last_block(ticket)); }
  void ReadResult(Ticket ticket, OperationResult* result) const override;
  std::string QueueName(uint32_t qpn) const override;
  std::string Answers() const override;
  std::string TimeoutHint() const override;

  uint16_t& last_block(Ticket ticket) { return last_blocks_[ticket & (last_blocks_.size() - 1)]; }
  const std::byte* AckEntry(Ticket ticket) const;

  const std::unique_ptr<Messages> messages_;
  uint64_t next_addr_ = 0;  // of the first replica's region
  uint32_t next_rkey_ = 0;
  Ticket remote_acked_ = 0;            // by the last replica
  uint16_t down_blocks_ = 0;           // blocks posted to `down_` so far; wraps
  std::vector<uint16_t> last_blocks_;  // the last block of each operation in `down_`, by ticket
  uint32_t receives_consumed_ = 0;     // since the last replenishment
  std::vector<rnic::ReceiveRequest> receive_batch_;

  // Destroyed from the last to the first.
  std::unique_ptr<rnic::MemoryRegion> ack_mr_;  // the ack area, at buffer()
  std::unique_ptr<rnic::QueuePair> down_;
  std::unique_ptr<rnic::QueuePair> ack_;
};

}  // namespace hyperloop
