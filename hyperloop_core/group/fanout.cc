#include "group/fanout.h"

#include <algorithm>
#include <bit>

#include "group/infos.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

using rnic::Opcode;
using rnic::SendRequest;
using rnic::Sge;

namespace {

constexpr uint32_t kMaxRequests = 4;  // of one operation to one replica; each takes one block

}  // namespace

Result<std::unique_ptr<Group>> FanoutGroup::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                   rnic::MemoryRegion& region,
                                                   const GroupOptions& options,
                                                   const GroupGeometry& geometry) {
  std::unique_ptr<FanoutGroup> group(
      new FanoutGroup(device, options, geometry, Ordering::CopiesTake::kPrimarysBytes));
  HL_RETURN_IF_ERROR(group->Build(pd, region).WithContext("setting up the primary's queues"));
  return std::unique_ptr<Group>(std::move(group));
}

Status FanoutGroup::Build(rnic::ProtectionDomain& pd, rnic::MemoryRegion& region) {
  const uint32_t ring = std::bit_ceil(std::max(64u, kMaxRequests * geometry_.window));
  const size_t results = size_t{geometry_.slots} * geometry_.group_size * sizeof(uint64_t);
  HL_RETURN_IF_ERROR(BuildCommon(pd, region, (results + 63) / 64 * 64, ring * group_size()));
  for (uint32_t i = 0; i < group_size(); ++i) {
    rnic::QpAttr attr = QueueAttr(ring);
    attr.remote_access = 0;  // a replica only answers
    HL_ASSIGN_OR_RETURN(queues_[i], pd.CreateQueuePair(attr));
    replicas_[i].qpn = info_.direct_qpn[i] = queues_[i]->qpn();
  }
  return Status::Ok();
}

FanoutGroup::~FanoutGroup() {
  for (const auto& queue : queues_) {
    if (queue) queue->Reset().IgnoreError();
  }
  if (local_) local_->Reset().IgnoreError();
}

Status FanoutGroup::Connect(std::span<const MemberInfo> replicas) {
  if (connected_) return InvalidArgument("this group is connected already; create a new one");
  HL_RETURN_IF_ERROR(CheckChain(replicas, geometry_, region_size()));
  HL_RETURN_IF_ERROR(ConnectLoopback());
  for (uint32_t i = 0; i < group_size(); ++i) {
    replicas_[i].region_addr = replicas[i].region_addr;
    replicas_[i].region_rkey = replicas[i].region_rkey;
    HL_RETURN_IF_ERROR(queues_[i]
                           ->Connect({{replicas[i].gid}, replicas[i].up_qpn})
                           .WithContext(Text("connecting to replica ", i)));
  }
  connected_ = true;
  return Status::Ok();
}

uint64_t& FanoutGroup::original(Ticket ticket, uint32_t replica) const {
  auto* const results = reinterpret_cast<uint64_t*>(buffer());
  return results[size_t{geometry_.slot(ticket - 1)} * group_size() + replica];
}

Status FanoutGroup::Post(uint64_t m, const Operation& operation) {
  for (uint32_t i = 0; i < group_size(); ++i) HL_RETURN_IF_ERROR(PostTo(i, m, operation));
  return Status::Ok();
}

Status FanoutGroup::PostTo(uint32_t replica, uint64_t m, const Operation& operation) {
  const Replica& to = replicas_[replica];
  std::array<SendRequest, kMaxRequests> requests;
  std::array<Sge, kMaxRequests> sges;
  size_t n = 0;
  const auto add = [&](Opcode opcode, const Sge& sge, uint64_t remote_offset) -> SendRequest& {
    sges[n] = sge;
    SendRequest& request = requests[n];
    request.opcode = opcode;
    request.sges = std::span(&sges[n], 1);
    request.remote_addr = to.region_addr + remote_offset;
    request.rkey = to.region_rkey;
    ++n;
    return request;
  };
  const auto region = [this](uint64_t offset, uint64_t size) {
    return Sge{region_addr_ + offset, static_cast<uint32_t>(size), region_lkey_};
  };
  if (operation.write.size != 0) {
    add(Opcode::kWrite, region(operation.write.offset, operation.write.size),
        operation.write.offset);
  }
  if (const Operation::Copy& copy = operation.copy; copy.size != 0)
    add(Opcode::kWrite, region(copy.source, copy.size), copy.destination);
  uint64_t& found = original(m + 1, replica);
  found = 0;
  if (const Operation::Cas& cas = operation.cas;
      cas.present && (cas.execute_map >> replica & 1) != 0) {
    SendRequest& request =
        add(Opcode::kCompareSwap,
            {reinterpret_cast<uint64_t>(&found), sizeof(found), buffer_mr().lkey()}, cas.offset);
    request.compare_or_add = cas.expected;
    request.swap = cas.desired;
  }
  if (operation.flush || operation.copy.size != 0 || operation.cas.present || n == 0)
    add(Opcode::kRead, sink_, 0);
  requests[n - 1].signaled = true;
  return queues_[replica]->Post(std::span(requests.data(), n));
}

// --- acknowledgements

void FanoutGroup::OnCompletion(const rnic::Completion& completion) {
  for (uint32_t i = 0; i < group_size(); ++i) {
    if (replicas_[i].qpn != completion.qpn) continue;
    ++replicas_[i].done;
    return;
  }
}

Ticket FanoutGroup::remote_acked() const {
  Ticket least = replicas_[0].done;
  for (uint32_t i = 1; i < group_size(); ++i) least = std::min(least, replicas_[i].done);
  return least;
}

uint64_t FanoutGroup::CompletionsUntil(Ticket ticket) const {
  uint64_t completions = 0;
  for (uint32_t i = 0; i < group_size(); ++i)
    completions += ticket - std::min(ticket, replicas_[i].done);
  return completions;
}

void FanoutGroup::ReadResult(Ticket ticket, OperationResult* result) const {
  for (uint32_t i = 0; i < group_size(); ++i) result->original[i] = original(ticket, i);
}

// --- texts

std::string FanoutGroup::QueueName(uint32_t qpn) const {
  for (uint32_t i = 0; i < group_size(); ++i) {
    if (replicas_[i].qpn == qpn) return "the queue to " + NameOf(i);
  }
  return "a queue";
}

std::string FanoutGroup::Answers() const {
  std::string text = "the replicas answered ";
  for (uint32_t i = 0; i < group_size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(replicas_[i].done);
  return text;
}

std::string FanoutGroup::TimeoutHint() const {
  std::string text;
  for (uint32_t i = 0; i < group_size(); ++i)
    if (replicas_[i].done <= remote_acked()) text += (text.empty() ? "" : ", ") + NameOf(i);
  return text + " does not answer this node, see the replicas' status";
}

// --- the replica's end

Result<std::unique_ptr<Member>> FanoutMember::Create(rnic::Device& device,
                                                     rnic::ProtectionDomain& pd,
                                                     rnic::MemoryRegion& region, uint32_t position,
                                                     const GroupGeometry& geometry) {
  std::unique_ptr<FanoutMember> member(new FanoutMember(geometry));
  HL_ASSIGN_OR_RETURN(member->cq_, device.CreateCq({.depth = 16}));
  rnic::QpAttr attr;
  attr.send_cq = attr.recv_cq = member->cq_.get();
  attr.send_wqebbs = 16;
  attr.recv_wqes = 0;
  HL_ASSIGN_OR_RETURN(member->up_, pd.CreateQueuePair(attr));
  member->info_ = InfoOf(device, region, position, geometry);
  member->info_.up_qpn = member->up_->qpn();
  return std::unique_ptr<Member>(std::move(member));
}

FanoutMember::~FanoutMember() {
  if (up_) up_->Reset().IgnoreError();
}

Status FanoutMember::Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this member is connected already; create a new one");
  HL_RETURN_IF_ERROR(CheckInfos(primary, chain, geometry_, info_));
  connected_ = true;
  return up_->Connect({{primary.gid}, primary.direct_qpn[info_.position]})
      .WithContext("connecting to the primary");
}

}  // namespace hyperloop
