#include "group/chain_group.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "group/cpu_message.h"
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
                                                  const SlotProgram& program,
                                                  std::unique_ptr<Messages> messages) {
  std::unique_ptr<ChainGroup> group(new ChainGroup(device, options, program, std::move(messages)));
  HL_RETURN_IF_ERROR(group->Build(pd, region).WithContext("setting up the primary's queues"));
  return std::unique_ptr<Group>(std::move(group));
}

Status ChainGroup::Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region) {
  const bool offload = geometry_.datapath == Datapath::kOffload;
  const uint32_t window = geometry_.window;
  const size_t ack_bytes = AckAreaBytes(geometry_.slots, geometry_.group_size);
  // A block may be written again once a later operation that had a READ is acknowledged
  // (docs/rnic.md), and every N/2-th operation has one. So the ring has room for N/2 operations of
  // 2 blocks and W operations of 3.
  const uint32_t down_ring = std::bit_ceil(geometry_.slots + 3 * window + 1);
  const uint32_t receives = std::bit_ceil(std::max(16u, 2 * window));
  proofs_.resize(offload ? geometry_.group_size - 1 : 0);
  proofs_here_ = ack_bytes + messages_->memory_bytes();
  HL_RETURN_IF_ERROR(
      BuildCommon(pd, region, proofs_here_ + (offload ? geometry_.slots * sizeof(uint64_t) : 0),
                  down_ring + 2 * receives * static_cast<uint32_t>(1 + proofs_.size())));
  // The replicas write result areas and proofs into the ack area. With offload they also read
  // there, because a READ's answer proves that their earlier requests are acknowledged.
  uint32_t access = rnic::kLocalWrite | rnic::kRemoteWrite;
  if (offload) access |= rnic::kRemoteRead;
  HL_ASSIGN_OR_RETURN(ack_mr_, pd.Register(buffer(), ack_bytes, access, {}));
  last_blocks_.resize(std::bit_ceil(size_t{window}));
  rnic::QpAttr down = QueueAttr(down_ring);
  down.remote_access = 0;  // the first replica only answers
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(down));
  // WRITE_IMM takes a receive and leaves its SGEs alone.
  receive_batch_.assign(receives / 2,
                        rnic::ReceiveRequest{.id = 0, .sges = std::span<const Sge>(&sink_, 1)});
  HL_RETURN_IF_ERROR(BuildAckQueue(pd, &ack_));
  for (uint32_t i = 0; i < proofs_.size(); ++i) {
    HL_RETURN_IF_ERROR(BuildAckQueue(pd, &proofs_[i]));
    info_.direct_qpn[i] = proofs_[i].queue->qpn();
  }
  info_.down_qpn = down_->qpn();
  info_.ack_qpn = ack_.queue->qpn();
  info_.ack_addr = reinterpret_cast<uint64_t>(buffer());
  info_.ack_size = ack_bytes;
  info_.ack_rkey = ack_mr_->rkey();
  return Status::Ok();
}

Status ChainGroup::BuildAckQueue(rnic::ProtectionDomain& pd, AckQueue* ack) {
  rnic::QpAttr attr = QueueAttr(64);
  attr.recv_wqes = static_cast<uint32_t>(2 * receive_batch_.size());
  attr.remote_access = rnic::kRemoteWrite;
  if (geometry_.datapath == Datapath::kOffload) attr.remote_access |= rnic::kRemoteRead;
  HL_ASSIGN_OR_RETURN(ack->queue, pd.CreateQueuePair(attr));
  return Status::Ok();
}

ChainGroup::~ChainGroup() {
  if (down_) down_->Reset().IgnoreError();
  for (AckQueue& proof : proofs_)
    if (proof.queue) proof.queue->Reset().IgnoreError();
  if (ack_.queue) ack_.queue->Reset().IgnoreError();
  if (local_) local_->Reset().IgnoreError();
}

Status ChainGroup::Connect(std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this group is connected already; create a new one");
  if (forked()) return ForkedStatus();
  HL_RETURN_IF_ERROR(CheckChain(chain, geometry_, region_size()));
  if (geometry_.datapath == Datapath::kOffload) program_.Place(info_, chain);
  next_ = chain.front();
  messages_->PlaceIn(buffer() + info_.ack_size, info_, chain);
  HL_RETURN_IF_ERROR(ConnectLoopback());
  HL_RETURN_IF_ERROR(ConnectAckQueue(ack_, {{chain.back().gid}, chain.back().down_qpn})
                         .WithContext("connecting to the last replica"));
  for (uint32_t i = 0; pipelined() && i < proofs_.size(); ++i) {
    HL_RETURN_IF_ERROR(ConnectAckQueue(proofs_[i], {{chain[i].gid}, chain[i].ack_qpn})
                           .WithContext(Text("connecting to replica ", i, " for its proofs")));
  }
  HL_RETURN_IF_ERROR(down_->Connect({{chain.front().gid}, chain.front().up_qpn})
                         .WithContext("connecting to the first replica"));
  connected_ = true;
  return Status::Ok();
}

Status ChainGroup::ConnectAckQueue(AckQueue& ack, const rnic::QpAddress& peer) {
  HL_RETURN_IF_ERROR(ack.queue->Connect(peer));
  for (int half = 0; half < 2; ++half) {
    HL_RETURN_IF_ERROR(ack.queue->PostReceive(receive_batch_)
                           .WithContext("posting receives for acknowledgements"));
  }
  return Status::Ok();
}

// --- operations

Sge ChainGroup::DataSge(const Operation& operation) const {
  return {region_addr_ + operation.write.offset, static_cast<uint32_t>(operation.write.size),
          region_lkey_};
}

void ChainGroup::SetData(SendRequest* write, const Operation& operation, const Sge& data) const {
  write->opcode = Opcode::kWrite;
  write->sges = std::span(&data, 1);
  write->remote_addr = next_.region_addr + operation.write.offset;
  write->rkey = next_.region_rkey;
}

Sge ChainGroup::MessageSge(uint64_t m) const {
  return {reinterpret_cast<uint64_t>(messages_->message(m)), messages_->message_bytes(),
          buffer_mr().lkey()};
}

void ChainGroup::SetMessage(SendRequest* send, const Sge& message) {
  send->opcode = Opcode::kSend;
  send->sges = std::span(&message, 1);
}

// A WRITE into the first replica's ring (cpu_message.h).
void ChainGroup::SetRingMessage(SendRequest* write, uint64_t m, std::span<const Sge> pieces) const {
  const uint32_t slot = geometry_.slot(m);
  uint32_t length = 0;
  for (const Sge& piece : pieces) length += piece.length;
  const bool events = geometry_.datapath == Datapath::kCpuEvent;
  write->opcode = events ? Opcode::kWriteImm : Opcode::kWrite;
  write->solicited = events;  // wakes the replica's thread
  write->imm = slot;
  write->sges = pieces;
  write->remote_addr = CpuSlotEnd(next_.staging_addr, slot, geometry_.group_size) - length;
  write->rkey = next_.staging_rkey;
}

Status ChainGroup::Post(uint64_t m, const Operation& operation) {
  const bool flush = messages_->Encode(m, operation);
  if (pipelined()) return PostPipelined(m, operation);
  std::array<SendRequest, 3> requests;
  size_t n = 0;
  const std::array<Sge, 2> pieces = {DataSge(operation), MessageSge(m)};
  const std::span<const Sge> carrying(pieces), message = carrying.last(1);
  const bool by_cpu = geometry_.datapath != Datapath::kOffload;
  const bool carried = by_cpu && CarriedBytes(operation.write.size) != 0;
  if (operation.write.size != 0 && !carried) SetData(&requests[n++], operation, pieces[0]);
  if (flush) {
    SendRequest& read = requests[n++];
    read.opcode = Opcode::kRead;
    read.sges = std::span(&sink_, 1);
    read.remote_addr = next_.region_addr;
    read.rkey = next_.region_rkey;
  }
  requests[n].fence = true;
  if (by_cpu) {
    SetRingMessage(&requests[n++], m, carried ? carrying : message);
  } else {
    SetMessage(&requests[n++], message[0]);
  }
  return PostDown(m, std::span(requests.data(), n));
}

Status ChainGroup::PostPipelined(uint64_t m, const Operation& operation) {
  std::array<SendRequest, 3> requests;
  size_t n = 0;
  const Sge data = DataSge(operation), message = MessageSge(m), proof = ProofHere(m);
  if (operation.write.size != 0) SetData(&requests[n++], operation, data);
  SetMessage(&requests[n++], message);
  SendRequest& read = requests[n++];
  read.opcode = Opcode::kRead;
  read.signaled = true;
  read.sges = std::span(&proof, 1);
  read.remote_addr = program_.sequence_addr(next_, geometry_.slot(m));
  read.rkey = next_.staging_rkey;
  return PostDown(m, std::span(requests.data(), n));
}

Status ChainGroup::PostDown(uint64_t m, std::span<const SendRequest> requests) {
  HL_RETURN_IF_ERROR(down_->Post(requests));
  down_blocks_ = static_cast<uint16_t>(down_blocks_ + requests.size());  // each takes one block
  last_block(m + 1) = static_cast<uint16_t>(down_blocks_ - 1);
  messages_->Prefetch(m + 1);
  return Status::Ok();
}

// --- acknowledgements

// The word that hop 0's READ of operation `m` brings.
Sge ChainGroup::ProofHere(uint64_t m) const {
  return {reinterpret_cast<uint64_t>(proofs_here() + geometry_.slot(m)), kFlushReadBytes,
          buffer_mr().lkey()};
}

const std::byte* ChainGroup::AckEntry(Ticket ticket) const {
  return buffer() + size_t{geometry_.slot(ticket - 1)} * AckStride(geometry_.group_size);
}

Ticket ChainGroup::remote_acked() const {
  Ticket least = ack_.newest;
  if (!pipelined()) return least;
  for (uint32_t hop = 0; hop < geometry_.group_size; ++hop) least = std::min(least, proven(hop));
  return least;
}

// Poll read the CQE with acquire: the device wrote the entry or the word before the CQE.
void ChainGroup::OnCompletion(const rnic::Completion& completion) {
  if (completion.qpn == info_.ack_qpn) return OnLastReplica(completion);
  if (completion.qpn == info_.down_qpn) return OnFlushed();
  for (uint32_t i = 0; i < proofs_.size(); ++i)
    if (completion.qpn == info_.direct_qpn[i]) return OnProof(i, completion);
}

void ChainGroup::OnLastReplica(const rnic::Completion& completion) {
  const Ticket ticket = ack_.newest + 1;
  const std::byte* entry = AckEntry(ticket);
  const auto* results = reinterpret_cast<const ReplicaResult*>(entry + sizeof(ResultHeader));
  const uint64_t sequence = reinterpret_cast<const ResultHeader*>(entry)->sequence;
  if (!IsDue(completion, ticket) || sequence != ticket) [[unlikely]] {
    return BreakOnAck("the last replica", completion, ticket, sequence);
  }
  for (uint32_t i = 0; i < geometry_.group_size; ++i) {
    if (results[i].word == ticket) continue;
    Break(Corruption(Text("operation ", ticket, " came back without replica ", i,
                          "'s proof that its copies ran (word ", results[i].word, "); ",
                          Progress())));
    return;
  }
  ack_.newest = ticket;
  ++ack_.receives_consumed;
}

void ChainGroup::OnProof(uint32_t replica, const rnic::Completion& completion) {
  AckQueue& proof = proofs_[replica];
  const Ticket ticket = proof.newest + 1;
  uint64_t word;
  std::memcpy(&word,
              buffer() + ProofOffset(geometry_.slots, geometry_.group_size,
                                     geometry_.slot(ticket - 1), replica),
              sizeof(word));
  if (!IsDue(completion, ticket)) [[unlikely]] {
    return BreakOnAck(NameOf(replica), completion, ticket, word);
  }
  if (word != ticket) [[unlikely]] {
    Break(
        Unavailable(Text(NameOf(replica), " cannot tell whether operation ", ticket,
                         " is durable on ", NameOf(replica + 1), " (it read number ", word,
                         " there): its queue to replica ", replica + 1, " failed; ", Progress())));
    return;
  }
  proof.newest = ticket;
  ++proof.receives_consumed;
}

void ChainGroup::OnFlushed() {
  const Ticket ticket = flushed_ + 1;
  const uint64_t word = proofs_here()[geometry_.slot(ticket - 1)];
  if (word != ticket) [[unlikely]] {
    Break(Corruption(Text("replica 0 answered the flush of operation ", ticket, " with number ",
                          word, "; ", Progress())));
    return;
  }
  flushed_ = ticket;
}

bool ChainGroup::IsDue(const rnic::Completion& completion, Ticket ticket) const {
  return completion.opcode == rnic::WcOpcode::kReceiveWriteImm &&
         completion.imm == geometry_.slot(ticket - 1) && ticket <= submitted_;
}

void ChainGroup::BreakOnAck(const std::string& whose, const rnic::Completion& completion,
                            Ticket due, uint64_t sequence) {
  Break(Corruption(Text(whose, " acknowledged slot ", completion.imm, " with number ", sequence,
                        " where operation ", due, " in slot ", geometry_.slot(due - 1),
                        " was due; ", Progress())));
}

void ChainGroup::OnCompletionsDone() {
  Replenish(ack_);
  if (!pipelined()) return;
  for (AckQueue& proof : proofs_) Replenish(proof);
}

void ChainGroup::Replenish(AckQueue& ack) {
  if (ack.receives_consumed < receive_batch_.size()) [[likely]] {
    return;
  }
  if (!broken_.ok()) return;
  if (Status posted = ack.queue->PostReceive(receive_batch_); !posted.ok()) {
    Break(posted.WithContext("posting receives for acknowledgements"));
    return;
  }
  ack.receives_consumed -= static_cast<uint32_t>(receive_batch_.size());
}

void ChainGroup::ReadResult(Ticket ticket, OperationResult* result) const {
  const auto* results =
      reinterpret_cast<const ReplicaResult*>(AckEntry(ticket) + sizeof(ResultHeader));
  for (uint32_t i = 0; i < geometry_.group_size; ++i) result->original[i] = results[i].original;
}

// --- texts

std::string ChainGroup::QueueName(uint32_t qpn) const {
  if (qpn == info_.down_qpn) return "the queue to the first replica";
  for (uint32_t i = 0; i < proofs_.size(); ++i)
    if (qpn == info_.direct_qpn[i]) return Text("the queue from replica ", i);
  return "the queue from the last replica";
}

std::string ChainGroup::Answers() const {
  std::string text = Text("the last replica answered ", ack_.newest);
  if (!pipelined()) return text;
  text += ", operations known to be durable: ";
  for (uint32_t i = 0; i < geometry_.group_size; ++i)
    text += Text(i == 0 ? "" : ", ", proven(i), " on replica ", i);
  return text;
}

std::string ChainGroup::TimeoutHint() const {
  if (geometry_.datapath == Datapath::kOffload) {
    return Text(pipelined() ? WaitsFor() : "a replica or the network is down",
                ", see the replicas' status");
  }
  return Text("a replica or the network is down, or a replica's process does not run: datapath ",
              DatapathName(geometry_.datapath),
              " forwards by the replicas' CPUs, see the replicas' status");
}

// A message that was lost stops the answers of all later hops, so the first of those that are
// behind is where the chain is broken.
std::string ChainGroup::WaitsFor() const {
  const Ticket acked = remote_acked();
  if (proven(0) == acked) return NameOf(0) + " does not answer this node";
  for (uint32_t hop = 1; hop < geometry_.group_size; ++hop) {
    if (proven(hop) == acked) {
      return Text(NameOf(hop), " does not answer ", NameOf(hop - 1), ", or replica ", hop - 1,
                  " does not reach this node");
    }
  }
  return NameOf(geometry_.group_size - 1) + ", the last one, does not reach this node";
}

}  // namespace hyperloop
