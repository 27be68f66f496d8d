#include "replica/node.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "common/printable.h"
#include "common/random_uuid.h"
#include "control/directive.h"
#include "control/endpoint.h"
#include "control/owner.h"
#include "hyperloop/core/text.h"
#include "inspect/member_check.h"
#include "inspect/resync.h"
#include "membership/replica_lists.h"

namespace hyperloop {
namespace {

using control::BodyUnion;

constexpr uint32_t kMinChecksumBlock = 512;
constexpr uint64_t kMaxChecksums = control::kMaxReply / 16;

std::vector<uint8_t> Bytes(const Uuid& uuid) { return {uuid.begin(), uuid.end()}; }

Result<Uuid> ToUuid(std::span<const uint8_t> bytes, std::string_view what) {
  Uuid uuid{};
  if (bytes.size() != uuid.size()) {
    return InvalidArgument(Text(what, " of ", bytes.size(), " bytes, not ", uuid.size()));
  }
  std::copy(bytes.begin(), bytes.end(), uuid.begin());
  if (uuid == kNilUuid) return InvalidArgument(Text(what, " is nil"));
  return uuid;
}

template <class Value>
Status FromBytes(std::span<const uint8_t> bytes, std::string_view what, Value* out) {
  if (bytes.size() != sizeof(Value)) {
    return InvalidArgument(Text(what, " of ", bytes.size(), " B, not ", sizeof(Value)));
  }
  std::memcpy(out, bytes.data(), sizeof(Value));
  return {};
}

// Checks a region while its log does not move. Nothing: it moved in each of the attempts.
std::optional<MemberCheck> CheckWhileStill(std::span<const std::byte> region,
                                           const RegionInfo& info) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    Scrubber scrubber(region, info);
    while (!scrubber.Step(region.size())) {
    }
    if (scrubber.result().has_value()) return scrubber.result();
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Node>> Node::Create(Identity identity, std::span<const std::byte> region,
                                           NodeStateStore& store, NodeService& service, Log* log) {
  std::unique_ptr<Node> node(new Node(std::move(identity), region, store, service, log));
  Result<NodeState> loaded = store.Load();
  if (loaded.ok()) {
    node->state_ = std::move(loaded).value();
  } else if (loaded.status().code() == Code::kNotFound) {
    if (ParseSuperblock(region, region.size()).status().code() != Code::kNotFound) {
      return Corruption(
          "the pool's node page is empty but its region is not: what this node promised is lost");
    }
    NodeState fresh;
    fresh.node = RandomUuid();
    HL_RETURN_IF_ERROR(node->Save(fresh));
  } else {
    return loaded.status();
  }
  if (node->state_.installed.epoch != 0) HL_RETURN_IF_ERROR(node->CheckRegion());
  return node;
}

BodyUnion Node::Handle(const BodyUnion& request) {
  using namespace control;  // NOLINT(google-build-using-namespace)
  switch (request.type) {
    case Body::HelloRequest:
      return MakeBody(Hello(*As<HelloRequestT>(request)));
    case Body::SealRequest:
      return MakeReply(Seal(*As<SealRequestT>(request)));
    case Body::ExamineRequest:
      return MakeReply(Examine());
    case Body::AttachRequest:
      return MakeReply(Attach(*As<AttachRequestT>(request)));
    case Body::ChecksumsRequest:
      return MakeReply(Checksums(*As<ChecksumsRequestT>(request)));
    case Body::InstallRequest:
      return MakeReply(Install(*As<InstallRequestT>(request)));
    case Body::PrepareMemberRequest:
      return MakeReply(Prepare(*As<PrepareMemberRequestT>(request)));
    case Body::ConnectMemberRequest:
      return MakeReply(Connect(*As<ConnectMemberRequestT>(request)));
    case Body::ReconnectRequest:
      return MakeReply(Reconnect(*As<ReconnectRequestT>(request)));
    case Body::ReleaseRequest:
      return MakeReply(Release(*As<ReleaseRequestT>(request)));
    case Body::ProposeRequest:
      return MakeReply(Propose(*As<ProposeRequestT>(request)));
    case Body::TryWayRequest:
      return MakeReply(TryWay(*As<TryWayRequestT>(request)));
    case Body::DirectRequest:
      return MakeReply(Direct(*As<DirectRequestT>(request)));
    default:
      return MakeError(InvalidArgument(Text(BodyName(request.type), " is not a request")));
  }
}

control::HelloReplyT Node::Hello(const control::HelloRequestT& request) const {
  if (IsOwnerId(request.owner_id, state_.sealed_owner)) store_.Beat();
  control::HelloReplyT reply;
  reply.node_id = FormatUuid(state_.node);
  reply.host = identity_.host;
  reply.media = identity_.media;
  reply.region_size = region_.size();
  reply.device = Printable(service_.state(), control::kMaxText);
  if (state_.group != kNilUuid) reply.group = FormatUuid(state_.group);
  reply.sealed_epoch = state_.sealed_epoch;
  if (state_.sealed_owner != kNilUuid) reply.sealed_owner = Bytes(state_.sealed_owner);
  reply.sealed_owner_name = Printable(store_.owner_name(), control::kMaxOwnerName);
  reply.installed_epoch = state_.installed.epoch;
  ListReplicas(state_.installed.replicas, &reply.installed_nodes, &reply.installed_replicas);
  ListReplicas(state_.installed.absent, &reply.absent_nodes, &reply.absent_replicas);
  reply.branch_epoch = state_.installed.branch.epoch;
  reply.branch_owner = BranchOwner(state_.installed.branch);
  reply.absences = Printable(store_.absences(), control::kMaxText);
  (proposed_leaves_ ? reply.leaving_replica : reply.proposed_replica) = proposed_;
  reply.proposals = proposals_;
  if (!proposed_.empty()) {
    reply.proposal_epoch = proposal_epoch_;
    reply.proposal_vouchers = proposal_vouchers_;
  }
  reply.tries_ways = true;
  reply.failed_way = failed_way_;
  reply.failed_way_to = failed_way_to_;
  reply.directive = control::ToMessage(state_.directive);
  reply.released = state_.released;
  reply.heartbeat = store_.heartbeat();
  reply.bulk_port = identity_.bulk_port;
  const Configuration& served = Served();
  reply.served_epoch = served.epoch;
  if (served.owner != kNilUuid) reply.served_owner = Bytes(served.owner);
  return reply;
}

Result<control::ExamineReplyT> Node::Examine() const {
  control::ExamineReplyT reply;
  reply.content = Content(&reply.settled);
  return reply;
}

Status Node::CheckSeal(const control::SealRequestT& request, const Uuid& group) const {
  if (request.epoch <= state_.sealed_epoch || request.seen_sealed_epoch != state_.sealed_epoch ||
      request.seen_installed_epoch != state_.installed.epoch ||
      request.seen_served_epoch != Served().epoch) {
    return Fenced(Text("epoch ", request.epoch, " comes too late: ", SealedText(), ", epoch ",
                       state_.installed.epoch, " is installed, and ", Served().epoch,
                       " served; the request was made when these were epochs ",
                       request.seen_sealed_epoch, ", ", request.seen_installed_epoch, " and ",
                       request.seen_served_epoch));
  }
  if (request.epoch - state_.sealed_epoch > control::kMaxEpochStep) {
    return InvalidArgument(Text("epoch ", request.epoch, " is more than ", control::kMaxEpochStep,
                                " beyond epoch ", state_.sealed_epoch,
                                ", which is sealed here; a request may exceed it by no more"));
  }
  if (state_.installed.epoch != 0 && group != state_.group) {
    return InvalidArgument(Text("this replica belongs to group ", FormatUuid(state_.group),
                                ", not to ", request.group));
  }
  return {};
}

Result<control::SealReplyT> Node::Seal(const control::SealRequestT& request) {
  HL_ASSIGN_OR_RETURN(const Uuid owner, ToUuid(request.owner_id, "owner id"));
  HL_ASSIGN_OR_RETURN(const Uuid group, ParseUuid(request.group));
  HL_RETURN_IF_ERROR(CheckSeal(request, group));
  HL_RETURN_IF_ERROR(EndService());
  NodeState next = state_;
  next.group = group;
  next.sealed_epoch = request.epoch;
  next.sealed_owner = OwnerDigest(owner);
  next.released = next.awaits_opening = false;
  HL_RETURN_IF_ERROR(Save(std::move(next)));
  if (std::exchange(connected_, false)) ForgetReplaced();
  store_.SetOwnerName(request.owner_name);
  Say(LogLevel::kInfo, Text("sealed epoch ", request.epoch, " for ", request.owner_name));
  control::SealReplyT reply;
  if (!request.goes_on) reply.content = Content(nullptr);
  return reply;
}

std::unique_ptr<control::ContentT> Node::Content(bool* settled) const {
  auto content = std::make_unique<control::ContentT>();
  if (settled != nullptr) *settled = true;
  content->installed_epoch = state_.installed.epoch;
  if (content->installed_epoch == 0) return content;
  const Result<RegionInfo> info = ParseSuperblock(region_, region_.size());
  if (!info.ok()) {
    content->log_error = Printable(info.status().message(), control::kMaxText);
    return content;
  }
  const std::optional<MemberCheck> checked = CheckWhileStill(region_, *info);
  if (settled != nullptr) *settled = checked.has_value();
  // If a primary is writing, the part of its log that is visible suffices to choose a member. No
  // damage is reported then.
  const MemberCheck check =
      checked.has_value() ? *checked : CheckMember(region_, *info, 0, CheckDepth::kMetadata);
  content->last_seq = check.log.tail.seq;
  content->executed_seq = check.log.head.cursor.seq;
  content->acked_seq = check.acked;
  if (!checked.has_value()) return content;
  if (!check.readable())
    content->log_error =
        Printable((check.log_error.ok() ? check.metadata_error : check.log_error).message(),
                  control::kMaxText);
  for (const ExtentDamage& each : check.damaged)
    content->damage.push_back(Printable(each.Text(*info, check.table), control::kMaxText));
  for (const std::string& what : check.Damage(*info))
    Say(LogLevel::kError, Text("the region is damaged: ", what));
  return content;
}

Result<control::AttachReplyT> Node::Attach(const control::AttachRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  rnic::QpAddress peer;
  HL_RETURN_IF_ERROR(FromBytes(request.gid, "gid", &peer.gid.raw));
  peer.qpn = request.qpn;
  HL_ASSIGN_OR_RETURN(const NodeService::Access access, service_.Attach(peer));
  being_filled_ = being_filled_ || state_.installed.epoch != state_.sealed_epoch;
  control::AttachReplyT reply;
  reply.gid.assign(access.queue.gid.raw.begin(), access.queue.gid.raw.end());
  reply.qpn = access.queue.qpn;
  reply.region_addr = access.region_addr;
  reply.region_size = region_.size();
  reply.region_rkey = access.region_rkey;
  reply.heartbeat_addr = access.heartbeat_addr;
  reply.heartbeat_rkey = access.heartbeat_rkey;
  reply.rnic = access.rnic;
  return reply;
}

Result<control::ChecksumsReplyT> Node::Checksums(const control::ChecksumsRequestT& request) const {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  if (request.offset > region_.size() || request.length > region_.size() - request.offset) {
    return InvalidArgument(Text("checksums of ", request.length, " B at ", request.offset,
                                ": the region has ", region_.size(), " B"));
  }
  if (request.block_size < kMinChecksumBlock ||
      request.length / request.block_size >= kMaxChecksums) {
    return InvalidArgument(Text("checksums of ", request.length, " B by blocks of ",
                                request.block_size, " B: blocks of at least ", kMinChecksumBlock,
                                " B and fewer than ", kMaxChecksums, " blocks are served"));
  }
  control::ChecksumsReplyT reply;
  reply.checksums =
      BlockChecksums(region_.subspan(request.offset, request.length), request.block_size);
  return reply;
}

Result<control::DoneT> Node::Install(const control::InstallRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  if (state_.released) return Fenced(Text("nothing is installed any more: ", SealedText()));
  if (request.nodes.empty()) return InvalidArgument("configuration without replicas");
  HL_RETURN_IF_ERROR(CheckRegion());
  NodeState next = state_;
  next.installed = {request.epoch, state_.sealed_owner, {}, {}};
  HL_ASSIGN_OR_RETURN(next.installed.replicas, ParseReplicas(request.nodes, request.replicas));
  HL_ASSIGN_OR_RETURN(next.installed.absent,
                      ParseReplicas(request.absent_nodes, request.absent_replicas));
  HL_ASSIGN_OR_RETURN(next.installed.branch,
                      ParseBranch(request.branch_epoch, request.branch_owner));
  Configuration before = state_.installed;
  HL_RETURN_IF_ERROR(Save(std::move(next)));
  being_filled_ = false;
  store_.SetAbsences(request.absences);
  if (before.epoch != request.epoch && !Unserved()) {
    kept_ = before;
    replaced_ = std::move(before);
    connected_ = false;
  }
  if (request.lasting) kept_ = state_.installed;
  if (state_.installed.Has(proposed_) != proposed_leaves_) proposed_.clear();
  return control::DoneT{};
}

Result<control::PrepareMemberReplyT> Node::Prepare(const control::PrepareMemberRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  HL_RETURN_IF_ERROR(CheckInstalled(request.epoch));
  MemberOptions options;
  HL_ASSIGN_OR_RETURN(options.datapath, ParseDatapath(request.datapath));
  options.position = request.position;
  options.group_size = request.group_size;
  options.window = request.window;
  options.slots = request.slots;
  HL_ASSIGN_OR_RETURN(const MemberInfo info, service_.Prepare(options));
  control::PrepareMemberReplyT reply;
  reply.info.resize(sizeof(info));
  std::memcpy(reply.info.data(), &info, sizeof(info));
  return reply;
}

Result<control::DoneT> Node::Connect(const control::ConnectMemberRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  HL_RETURN_IF_ERROR(CheckInstalled(request.epoch));
  PrimaryInfo primary;
  HL_RETURN_IF_ERROR(FromBytes(request.primary, "primary's info", &primary));
  std::vector<MemberInfo> chain(request.chain.size() / sizeof(MemberInfo));
  if (chain.empty() || chain.size() > kMaxGroupSize ||
      request.chain.size() % sizeof(MemberInfo) != 0) {
    return InvalidArgument(Text("chain of ", request.chain.size(), " B"));
  }
  std::memcpy(chain.data(), request.chain.data(), request.chain.size());
  HL_RETURN_IF_ERROR(service_.Connect(primary, chain));
  connected_ = true;
  store_.SetDatapath(DatapathName(static_cast<Datapath>(primary.datapath)));
  Say(LogLevel::kInfo, Text("serving epoch ", request.epoch, " for ", store_.owner_name()));
  return control::DoneT{};
}

Result<control::DoneT> Node::Reconnect(const control::ReconnectRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  HL_RETURN_IF_ERROR(CheckInstalled(request.epoch));
  HL_RETURN_IF_ERROR(EndService());
  if (state_.released) {
    NodeState next = state_;
    next.released = next.awaits_opening = false;
    HL_RETURN_IF_ERROR(Save(std::move(next)));
  }
  return control::DoneT{};
}

Result<control::DoneT> Node::Release(const control::ReleaseRequestT& request) {
  HL_RETURN_IF_ERROR(CheckOwner(request.epoch, request.owner_id));
  service_.End();
  store_.SetDatapath("");
  NodeState next = state_;
  next.released = true;
  next.awaits_opening = request.awaits_opening;
  const bool restore = request.never_served && kept_.has_value();
  if (restore) next.installed = *kept_;
  HL_RETURN_IF_ERROR(Save(std::move(next)));
  connected_ = being_filled_ = false;
  // A lasting configuration stays, and nobody has served it.
  if (!restore || !replaced_.has_value() || kept_->epoch == replaced_->epoch) ForgetReplaced();
  Say(LogLevel::kInfo, Text("epoch ", request.epoch, " was released by its owner",
                            restore ? Text(", who never served; epoch ", state_.installed.epoch,
                                           " is installed again")
                                    : ""));
  return control::DoneT{};
}

// Only remembers: who decides is the primary, which knows all members.
Result<control::DoneT> Node::Propose(const control::ProposeRequestT& request) {
  HL_ASSIGN_OR_RETURN(const Uuid group, ParseUuid(request.group));
  if (state_.installed.epoch == 0 || group != state_.group) {
    return InvalidArgument(Text("this replica is not in group ", request.group,
                                ", so it proposes no other replica to it"));
  }
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(request.replica));
  std::string replica = endpoint.ToString();
  // The primary would find it out only when it writes the new configuration.
  if (replica.size() >= kConfigurationAddress) {
    return InvalidArgument(Text("address ", replica, " has more than ", kConfigurationAddress - 1,
                                " bytes; use a shorter name or the address"));
  }
  if (state_.installed.Has(replica) != request.leaves) return control::DoneT{};
  ++proposals_;
  proposal_epoch_ = request.epoch;
  proposal_vouchers_ = request.vouchers;
  if (replica == proposed_ && request.leaves == proposed_leaves_) return control::DoneT{};
  Say(LogLevel::kInfo, Text("replica ", replica, " is proposed to the group, for its primary to ",
                            request.leaves ? "give up" : "add"));
  proposed_ = std::move(replica);
  proposed_leaves_ = request.leaves;
  return control::DoneT{};
}

// For a node that is of no group yet, too, so it has no owner to check. Nothing is served or read.
Result<control::DoneT> Node::TryWay(const control::TryWayRequestT& request) {
  const Status tried = service_.TryWay(request.host, request.service);
  if (tried.code() == Code::kBusy) return tried;
  failed_way_ = tried.ok() ? "" : Printable(tried.message(), control::kMaxText);
  failed_way_to_ = request.replica;
  if (!tried.ok()) return tried;
  return control::DoneT{};
}

// A directive may come again, as from an agent that saw that this node had missed it. What has one
// number is always the same.
Result<control::DirectReplyT> Node::Direct(const control::DirectRequestT& request) {
  HL_ASSIGN_OR_RETURN(const Uuid group, ParseUuid(request.group));
  if (state_.installed.epoch == 0 || group != state_.group) {
    return InvalidArgument(
        Text("this replica is not in group ", request.group, ", so it tells its agents nothing"));
  }
  const DirectiveNumber number{request.count, request.writer};
  const DirectiveNumber promised = state_.promised;
  if (number.count == 0 || (number > promised && number.count - promised.count > kMaxDirectiveStep))
    return InvalidArgument(Text("directive ", number.count, " where ", promised.count,
                                " was promised last: it may exceed that by 1 to ",
                                kMaxDirectiveStep));
  control::DirectReplyT reply;
  reply.granted = request.directive == nullptr ? number > promised : number >= promised;
  if (reply.granted) {
    NodeState next = state_;
    next.promised = number;
    if (request.directive != nullptr) {
      next.directive = control::FromMessage(request.directive.get());
      next.directive.number = number;
    }
    const bool changes = next.promised != promised || next.directive != state_.directive;
    if (changes) HL_RETURN_IF_ERROR(Save(std::move(next)));
    if (changes && request.directive != nullptr)
      Say(LogLevel::kInfo,
          Text("the group's agents are told: ", control::DirectiveText(state_.directive)));
  }
  reply.promised_count = state_.promised.count;
  reply.promised_writer = state_.promised.writer;
  reply.directive = control::ToMessage(state_.directive);
  return reply;
}

Status Node::CheckOwner(uint64_t epoch, std::span<const uint8_t> owner) const {
  HL_RETURN_IF_ERROR(ToUuid(owner, "owner id").status());
  if (epoch == state_.sealed_epoch && IsOwnerId(owner, state_.sealed_owner)) {
    store_.Beat();
    return {};
  }
  return Fenced(Text("epoch ", epoch, " is not served here: ", SealedText()));
}

Status Node::CheckInstalled(uint64_t epoch) const {
  if (state_.installed.epoch == epoch) return {};
  return InvalidArgument(Text("epoch ", epoch, " is sealed but not installed here (installed: ",
                              state_.installed.epoch, ")"));
}

Status Node::CheckRegion() const {
  const Result<RegionInfo> info = ParseSuperblock(region_, region_.size());
  if (!info.ok()) {
    return Corruption(Text("the pool's region: ", info.status().message(),
                           "; its node page says group ", FormatUuid(state_.group)));
  }
  if (info->group != state_.group || info->geometry.region_size != region_.size()) {
    return Corruption(Text("the pool's region is one of group ", FormatUuid(info->group), " with ",
                           info->geometry.region_size, " B; the node page says group ",
                           FormatUuid(state_.group), " with ", region_.size(), " B"));
  }
  return {};
}

std::string Node::SealedText() const {
  return Text("epoch ", state_.sealed_epoch, " was granted to ", store_.owner_name(),
              state_.released ? " (released)" : "");
}

Status Node::EndService() {
  service_.End();
  store_.SetDatapath("");
  return service_.PersistRegion().WithContext("making the region durable");
}

Status Node::Save(NodeState next) {
  HL_RETURN_IF_ERROR(store_.Save(&next));
  state_ = std::move(next);
  return {};
}

void Node::Say(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->Write(level, text);
}

}  // namespace hyperloop
