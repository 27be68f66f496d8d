#include "group/chain_group.h"

#include <algorithm>
#include <array>
#include <bit>

#include "group/infos.h"
#include "group/result_area.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

Result<std::unique_ptr<Group>> ChainGroup::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                  rnic::MemoryRegion& region,
                                                  const GroupOptions& options,
                                                  const GroupGeometry& geometry,
                                                  std::unique_ptr<Messages> messages) {
  std::unique_ptr<ChainGroup> group(new ChainGroup(device, options, geometry, std::move(messages)));
  HL_RETURN_IF_ERROR(group->Build(pd, region).WithContext("setting up the primary's queues"));
  return std::unique_ptr<Group>(std::move(group));
}

Status ChainGroup::Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region) {
  const uint32_t window = geometry_.window;
  const size_t ack_bytes = size_t{geometry_.slots} * AckStride(geometry_.group_size);
  // A block may be written again once a later operation that had a READ is acknowledged
  // (docs/rnic.md), and every N/2-th operation has one. So the ring has room for N/2 operations of
  // 2 blocks and W operations of 3.
  const uint32_t down_ring = std::bit_ceil(geometry_.slots + 3 * window + 1);
  const uint32_t receives = std::bit_ceil(std::max(16u, 2 * window));
  HL_RETURN_IF_ERROR(
      BuildCommon(pd, region, ack_bytes + messages_->memory_bytes(), down_ring + 2 * receives));
  // The last replica writes the result areas into the ack area. With offload it also reads there,
  // because a READ's answer proves that its earlier requests are acknowledged.
  uint32_t access = rnic::kLocalWrite | rnic::kRemoteWrite;
  if (geometry_.datapath == Datapath::kOffload) access |= rnic::kRemoteRead;
  HL_ASSIGN_OR_RETURN(ack_mr_, pd.Register(buffer(), ack_bytes, access, {}));
  last_blocks_.resize(std::bit_ceil(size_t{window}));
  rnic::QpAttr down = QueueAttr(down_ring);
  down.remote_access = 0;  // the first replica only answers
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(down));
  rnic::QpAttr attr = QueueAttr(64);
  attr.recv_wqes = receives;
  attr.remote_access = access & ~uint32_t{rnic::kLocalWrite};
  HL_ASSIGN_OR_RETURN(ack_, pd.CreateQueuePair(attr));
  // WRITE_IMM takes a receive and leaves its SGEs alone.
  receive_batch_.assign(receives / 2,
                        rnic::ReceiveRequest{.id = 0, .sges = std::span<const Sge>(&sink_, 1)});
  info_.down_qpn = down_->qpn();
  info_.ack_qpn = ack_->qpn();
  info_.ack_addr = reinterpret_cast<uint64_t>(buffer());
  info_.ack_size = ack_bytes;
  info_.ack_rkey = ack_mr_->rkey();
  return Status::Ok();
}

ChainGroup::~ChainGroup() {
  if (down_) down_->Reset().IgnoreError();
  if (ack_) ack_->Reset().IgnoreError();
  if (local_) local_->Reset().IgnoreError();
}

Status ChainGroup::Connect(std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this group is connected already; create a new one");
  if (forked()) return ForkedStatus();
  HL_RETURN_IF_ERROR(CheckChain(chain, geometry_, region_size()));
  next_addr_ = chain.front().region_addr;
  next_rkey_ = chain.front().region_rkey;
  messages_->PlaceIn(buffer() + info_.ack_size, info_, chain);
  HL_RETURN_IF_ERROR(ConnectLoopback());
  HL_RETURN_IF_ERROR(ack_->Connect({{chain.back().gid}, chain.back().down_qpn})
                         .WithContext("connecting to the last replica"));
  HL_RETURN_IF_ERROR(down_->Connect({{chain.front().gid}, chain.front().up_qpn})
                         .WithContext("connecting to the first replica"));
  for (int half = 0; half < 2; ++half) {
    HL_RETURN_IF_ERROR(
        ack_->PostReceive(receive_batch_).WithContext("posting receives for acknowledgements"));
  }
  connected_ = true;
  return Status::Ok();
}

Status ChainGroup::Post(uint64_t m, const Operation& operation) {
  const bool flush = messages_->Encode(m, operation);
  std::array<SendRequest, 3> requests;
  size_t n = 0;
  Sge data;
  if (operation.write.size != 0) {
    data = {region_addr_ + operation.write.offset, static_cast<uint32_t>(operation.write.size),
            region_lkey_};
    SendRequest& write = requests[n++];
    write.opcode = Opcode::kWrite;
    write.sges = std::span(&data, 1);
    write.remote_addr = next_addr_ + operation.write.offset;
    write.rkey = next_rkey_;
  }
  if (flush) {
    SendRequest& read = requests[n++];
    read.opcode = Opcode::kRead;
    read.sges = std::span(&sink_, 1);
    read.remote_addr = next_addr_;
    read.rkey = next_rkey_;
  }
  const Sge message{reinterpret_cast<uint64_t>(messages_->message(m)), messages_->message_bytes(),
                    buffer_mr().lkey()};
  SendRequest& send = requests[n++];
  send.opcode = Opcode::kSend;
  send.fence = true;
  send.solicited = true;  // wakes a replica that waits for completion events
  send.sges = std::span(&message, 1);
  HL_RETURN_IF_ERROR(down_->Post(std::span(requests.data(), n)));
  down_blocks_ = static_cast<uint16_t>(down_blocks_ + n);  // each takes one block
  last_block(m + 1) = static_cast<uint16_t>(down_blocks_ - 1);
  messages_->Prefetch(m + 1);
  return Status::Ok();
}

// --- acknowledgements

const std::byte* ChainGroup::AckEntry(Ticket ticket) const {
  return buffer() + size_t{geometry_.slot(ticket - 1)} * AckStride(geometry_.group_size);
}

void ChainGroup::OnCompletion(const rnic::Completion& completion) {
  const Ticket ticket = remote_acked_ + 1;
  const uint32_t slot = geometry_.slot(ticket - 1);
  // Poll read the CQE with acquire: the device wrote the entry before the CQE.
  const std::byte* entry = AckEntry(ticket);
  const auto* header = reinterpret_cast<const ResultHeader*>(entry);
  const auto* results = reinterpret_cast<const ReplicaResult*>(entry + sizeof(ResultHeader));
  if (completion.opcode != rnic::WcOpcode::kReceiveWriteImm || completion.imm != slot ||
      header->sequence != ticket || ticket > submitted_) [[unlikely]] {
    Break(Corruption(Text("the last replica acknowledged slot ", completion.imm, " with number ",
                          header->sequence, " where operation ", ticket, " in slot ", slot,
                          " was due; ", Progress())));
    return;
  }
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    if (results[i].word == ticket) continue;
    Break(Corruption(Text("operation ", ticket, " came back without replica ", i,
                          "'s proof that its copies ran (word ", results[i].word, "); ",
                          Progress())));
    return;
  }
  remote_acked_ = ticket;
  ++receives_consumed_;
}

void ChainGroup::OnCompletionsDone() {
  if (receives_consumed_ < receive_batch_.size()) return;
  if (Status posted = ack_->PostReceive(receive_batch_); !posted.ok()) {
    Break(posted.WithContext("posting receives for acknowledgements"));
    return;
  }
  receives_consumed_ -= static_cast<uint32_t>(receive_batch_.size());
}

void ChainGroup::ReadResult(Ticket ticket, OperationResult* result) const {
  const auto* results =
      reinterpret_cast<const ReplicaResult*>(AckEntry(ticket) + sizeof(ResultHeader));
  for (uint32_t i = 0; i < geometry_.group_size; ++i) result->original[i] = results[i].original;
}

// --- texts

std::string ChainGroup::QueueName(uint32_t qpn) const {
  return qpn == info_.down_qpn ? "the queue to the first replica"
                               : "the queue from the last replica";
}

std::string ChainGroup::Answers() const {
  return Text("the last replica answered ", remote_acked_);
}

std::string ChainGroup::TimeoutHint() const {
  if (geometry_.datapath == Datapath::kOffload)
    return "a replica or the network is down, see the replicas' status";
  return Text("a replica or the network is down, or a replica's process does not run: datapath ",
              DatapathName(geometry_.datapath),
              " forwards by the replicas' CPUs, see the replicas' status");
}

}  // namespace hyperloop
