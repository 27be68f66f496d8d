#include "primary/replica_handle.h"

#include <algorithm>
#include <cstring>

namespace hyperloop {
Status ReplicaHandle::Connect(std::chrono::nanoseconds timeout) {
  if (client_ != nullptr && client_->connected()) return {};
  HL_ASSIGN_OR_RETURN(client_,
                      control::ControlClient::Connect(endpoint_, trust_, timeout, 0, stop_));
  client_->EndWhen(stop_);
  return {};
}

Status ReplicaHandle::Attach(rnic::Device& device, const Ownership& own,
                             std::chrono::nanoseconds timeout, std::chrono::nanoseconds silence) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<RemoteAccess> access,
                      RemoteAccess::Create(device, timeout, silence));
  auto request = OwnerRequest<control::AttachRequestT>(own);
  const rnic::QpAddress ours = access->qp().address();
  request.gid.assign(ours.gid.raw.begin(), ours.gid.raw.end());
  request.qpn = ours.qpn;
  HL_ASSIGN_OR_RETURN(const control::AttachReplyT reply,
                      Call<control::AttachReplyT>(request, slow_timeout()));
  rnic::QpAddress theirs;
  if (reply.gid.size() != theirs.gid.raw.size()) {
    return Corruption(Text(name_, " answered with a gid of ", reply.gid.size(), " B"));
  }
  std::copy(reply.gid.begin(), reply.gid.end(), theirs.gid.raw.begin());
  theirs.qpn = reply.qpn;
  HL_RETURN_IF_ERROR(access->qp().Connect(theirs).WithContext(name_));
  region_ = {reply.region_addr, reply.region_size, reply.region_rkey};
  heartbeat_ = {reply.heartbeat_addr, kOwnerBytes, reply.heartbeat_rkey};
  rnic_ = reply.rnic;
  remote_access_ = std::move(access);
  return {};
}

void ReplicaHandle::Detach(bool may_blame) {
  suspect_ = suspect_ || (may_blame && remote_access_ != nullptr && remote_access_->broken());
  remote_access_.reset();
}

Result<std::vector<uint64_t>> ReplicaHandle::Checksums(const Ownership& own, const Range& range,
                                                       uint32_t block_size) {
  auto request = OwnerRequest<control::ChecksumsRequestT>(own);
  request.offset = range.offset;
  request.length = range.size;
  request.block_size = block_size;
  HL_ASSIGN_OR_RETURN(control::ChecksumsReplyT reply,
                      Call<control::ChecksumsReplyT>(request, slow_timeout()));
  const uint64_t blocks = range.size / block_size + (range.size % block_size != 0 ? 1 : 0);
  if (reply.checksums.size() != blocks) {
    return Corruption(
        Text(name_, " answered with ", reply.checksums.size(), " checksums, not ", blocks));
  }
  return std::move(reply.checksums);
}

Result<MemberInfo> ReplicaHandle::Prepare(const Ownership& own, const MemberOptions& options) {
  auto request = OwnerRequest<control::PrepareMemberRequestT>(own);
  request.datapath = DatapathName(options.datapath);
  request.position = options.position;
  request.group_size = options.group_size;
  request.window = options.window;
  request.slots = options.slots;
  HL_ASSIGN_OR_RETURN(const control::PrepareMemberReplyT reply,
                      Call<control::PrepareMemberReplyT>(request, slow_timeout()));
  MemberInfo info;
  if (reply.info.size() != sizeof(info)) {
    return Corruption(Text(name_, " answered with a member info of ", reply.info.size(), " B, not ",
                           sizeof(info)));
  }
  std::memcpy(&info, reply.info.data(), sizeof(info));
  return info;
}

Status ReplicaHandle::ConnectMember(const Ownership& own, const PrimaryInfo& primary,
                                    std::span<const MemberInfo> chain) {
  auto request = OwnerRequest<control::ConnectMemberRequestT>(own);
  request.primary.resize(sizeof(primary));
  std::memcpy(request.primary.data(), &primary, sizeof(primary));
  const auto* const members = reinterpret_cast<const uint8_t*>(chain.data());
  request.chain.assign(members, members + chain.size_bytes());
  return Call<control::DoneT>(request, slow_timeout()).status();
}

}  // namespace hyperloop
