// Session: how a group is taken. Everything that can be refused is refused before the first Seal.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/text.h"
#include "hyperloop/replication/inspect.h"
#include "journal/redo.h"
#include "primary/equalize.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kWatchOwner{500};  // five heartbeats
constexpr std::chrono::milliseconds kLookInterval{50};

std::string OwnerName(const std::string& directory) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return Text("process ", getpid(), " on ", host, " for ", directory);
}

}  // namespace

Result<std::vector<MemberLook>> Session::LookAtAll() {
  std::vector<MemberLook> looks;
  for (const auto& peer : peers_) {
    HL_ASSIGN_OR_RETURN(control::HelloReplyT hello, peer->Hello());
    looks.push_back({peer->name(), std::move(hello)});
  }
  return looks;
}

Status Session::Look() {
  const std::unique_lock lock(state_mutex_);
  HL_RETURN_IF_ERROR(LookAtAll().status());
  for (const auto& peer : peers_) peer->Disconnect();
  return {};
}

Status Session::RefuseLivingOwner(const std::vector<MemberLook>& first) {
  if (options_.takeover || NobodyToWatch(first)) return {};
  const auto until = std::chrono::steady_clock::now() + kWatchOwner;
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookInterval);
    HL_ASSIGN_OR_RETURN(const std::vector<MemberLook> now, LookAtAll());
    if (const MemberLook* living = LivingOwner(first, now)) {
      return Busy(Text("the group is held by a living primary: ", living->hello.sealed_owner_name,
                       " (epoch ", living->hello.sealed_epoch, " at ", living->name,
                       "); stop it first, or give takeover=true to fence it"));
    }
  }
  return {};
}

// What the group holds is read from its members by RDMA, without disturbing anybody, and the member
// is chosen by the rule that holds after sealing: what would be refused then is refused now.
Status Session::CheckBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                                   const std::vector<MemberLook>& looks) {
  if (plan.format) {
    HL_RETURN_IF_ERROR(
        RegionGeometry::Compute(plan.region_size, options_.journal_size, options_.table_capacity)
            .status());
    return CheckPairing(request, options_.restore, plan.group, {}, 0);
  }
  std::vector<NodeStatus> seen;
  std::vector<SealedMember> members;
  for (const MemberLook& look : looks) {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view,
                        NodeView::Connect(*device_, look.hello.host));
    HL_ASSIGN_OR_RETURN(seen.emplace_back(), view->ReadStatus());
    const NodeStatus& status = seen.back();
    control::SealReplyT as_sealed;
    as_sealed.installed_epoch = status.installed_epoch;
    as_sealed.last_seq = status.last_seq;
    as_sealed.executed_seq = status.head_seq;
    as_sealed.acked_seq = status.acked_seq;
    as_sealed.log_error = status.log_error;
    members.push_back({look.name, std::move(as_sealed)});
  }
  HL_ASSIGN_OR_RETURN(const Choice choice, ChooseMember(members));
  const NodeStatus& status = seen[choice.index];
  Binding binding;
  if (!status.database.empty()) {
    HL_ASSIGN_OR_RETURN(binding.database, ParseUuid(status.database));
    binding.directory = status.directory;
  }
  return CheckPairing(request, options_.restore, plan.group, binding, status.files.size());
}

Status Session::OpenOwnPool(const TakePlan& plan) {
  if (pool_ == nullptr) {
    const PoolOptions pool_options{options_.media};
    Result<std::unique_ptr<Pool>> pool = Pool::Open(options_.pool, pool_options);
    if (pool.status().code() == Code::kNotFound)
      pool = Pool::Create(options_.pool, plan.region_size, pool_options);
    if (!pool.ok()) return pool.status();
    pool_ = std::move(pool).value();
  }
  const auto mismatch = [&](const std::string& what) {
    return InvalidArgument(
        Text("the primary's pool ", options_.pool, " ", what,
             "; it is only a copy of the group: name another path, or remove the file"));
  };
  if (pool_->region().size() != plan.region_size) {
    return mismatch(Text("has a region of ", pool_->region().size(), " B, the replicas have ",
                         plan.region_size, " B"));
  }
  const Result<NodeState> state = ReadNodeState(pool_->node_page());
  if (!state.ok())
    return {};  // never written, or torn: what the region holds is compared with the group anyway
  if (state->sealed_epoch != 0)
    return InvalidArgument(Text(options_.pool, " is a replica's pool; name another path"));
  if (state->group != kNilUuid && state->group != plan.group) {
    return mismatch(Text("belongs to group ", FormatUuid(state->group), ", the replicas are ",
                         plan.format ? "fresh" : Text("group ", FormatUuid(plan.group))));
  }
  return {};
}

Result<Choice> Session::SealAll(const TakePlan& plan) {
  std::vector<SealedMember> sealed;
  for (const auto& peer : peers_) {
    auto request = OwnerRequest<control::SealRequestT>(own_);
    request.owner_name = own_.name;
    request.group = FormatUuid(plan.group);
    Result<control::SealReplyT> reply = peer->Call<control::SealReplyT>(request);
    if (reply.status().code() == Code::kFenced) {
      return Busy(
          Text("another primary takes the group at the same time: ", reply.status().message()));
    }
    if (!reply.ok()) return reply.status();
    sealed.push_back({peer->name(), std::move(reply).value()});
  }
  if (plan.format) {
    for (const SealedMember& each : sealed) {
      if (each.reply.installed_epoch != 0) {
        return Busy(Text("another primary takes the group at the same time: it has just formatted ",
                         each.name));
      }
    }
    return Choice{};
  }
  return ChooseMember(sealed);
}

Status Session::AttachAll() {
  for (const auto& peer : peers_) {
    HL_RETURN_IF_ERROR(peer->Attach(*device_, own_, options_.ack_timeout));
    if (peer->region().size != pool_->region().size()) {
      return Corruption(Text(peer->name(), " gave out a region of ", peer->region().size, " B"));
    }
  }
  return {};
}

Status Session::FormatOwn(const TakePlan& plan) {
  HL_ASSIGN_OR_RETURN(
      const RegionGeometry geometry,
      RegionGeometry::Compute(plan.region_size, options_.journal_size, options_.table_capacity));
  return FormatRegion(pool_->region(), plan.group, RandomSecret(), geometry);
}

Status Session::MakeEqual(uint64_t known_acked) {
  const auto own = pool_->region();
  HL_ASSIGN_OR_RETURN(info_, ParseSuperblock(own, own.size()));
  HL_ASSIGN_OR_RETURN(log_state_, Redo(own, info_, known_acked));
  HL_RETURN_IF_ERROR(FileTable::Load(own, info_).status());
  const LogState found = log_state_;
  if (!(found.tail == found.head.cursor)) WriteHead(own, info_, found.tail);
  HL_RETURN_IF_ERROR(pool_->media().Persist(own.data(), own.size()));
  HL_RETURN_IF_ERROR(PushRegion(peers_, own_, own, info_, found));
  HL_ASSIGN_OR_RETURN(log_state_.head, ReadHead(own, info_));
  return {};
}

Status Session::CheckOwnRegion(const TakeRequest& request) const {
  const auto own = pool_->region();
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(own, own.size()));
  HL_ASSIGN_OR_RETURN(const FileTable table, FileTable::Load(own, info));
  HL_ASSIGN_OR_RETURN(const Binding binding,
                      ParseBindingBlock(own.subspan(info.geometry.binding_offset), info));
  return CheckPairing(request, options_.restore, info.group, binding, table.List().size());
}

Status Session::InstallAll(const std::vector<MemberLook>& looks) {
  auto request = OwnerRequest<control::InstallRequestT>(own_);
  configuration_ = {own_.epoch, own_.owner, {}};
  for (size_t i = 0; i < peers_.size(); ++i) {
    request.nodes.push_back(looks[i].hello.node_id);
    request.replicas.push_back(peers_[i]->address());
    HL_ASSIGN_OR_RETURN(const Uuid node, ParseUuid(looks[i].hello.node_id));
    configuration_.replicas.push_back({node, peers_[i]->address()});
  }
  for (const auto& peer : peers_) HL_RETURN_IF_ERROR(peer->Call<control::DoneT>(request).status());
  return {};
}

// Only now: a pool of a taking that was cut short belongs to nobody.
Status Session::RememberGroup() {
  NodeState state;
  if (Result<NodeState> present = ReadNodeState(pool_->node_page()); present.ok())
    state = std::move(present).value();
  if (state.group == info_.group) return {};
  if (state.node == kNilUuid) state.node = RandomUuid();
  state.group = info_.group;
  const auto page = pool_->node_page();
  HL_ASSIGN_OR_RETURN(const PageRange range, WriteNodeState(page, &state));
  return pool_->media().Persist(page.data() + range.offset, range.size);
}

Status Session::BindLane(const TakeRequest& request, TakeResult* result) {
  TakeResult taken;
  taken.files = lane_->Files();
  taken.fresh = taken.files.empty();
  Binding binding = lane_->binding();
  // A directory that is not paired becomes a database of its own, whether the group was empty, is
  // restored into it or about to be emptied: the directory that held it before has local files that
  // would no longer fit, and must not be set to what the group holds from now on.
  const bool first = binding.database == kNilUuid || request.pairing.database.empty();
  if (first) {
    binding = {RandomUuid(), request.directory};
    HL_RETURN_IF_ERROR(lane_->Bind(binding));
  }
  taken.pairing = {FormatUuid(info_.group), FormatUuid(binding.database)};
  taken.epoch = own_.epoch;
  *result = std::move(taken);
  return {};
}

Status Session::TakeStages(const TakeRequest& request, TakeResult* result) {
  HL_ASSIGN_OR_RETURN(device_, open_device_());
  HL_ASSIGN_OR_RETURN(const std::vector<MemberLook> looks, LookAtAll());
  HL_ASSIGN_OR_RETURN(const TakePlan plan, PlanTake(looks, options_.region_size));
  HL_RETURN_IF_ERROR(RefuseLivingOwner(looks));
  HL_RETURN_IF_ERROR(CheckBeforeSealing(request, plan, looks));
  HL_RETURN_IF_ERROR(OpenOwnPool(plan));
  own_ = {plan.epoch, RandomUuid(), OwnerName(request.directory)};
  HL_ASSIGN_OR_RETURN(const Choice choice, SealAll(plan));
  HL_RETURN_IF_ERROR(AttachAll());
  StartHeartbeat(false);  // a rival that looks now sees that somebody is at work
  if (plan.format) {
    HL_RETURN_IF_ERROR(FormatOwn(plan));
  } else {
    HL_RETURN_IF_ERROR(PullRegion(*peers_[choice.index], own_, pool_->region()));
  }
  HL_RETURN_IF_ERROR(MakeEqual(choice.known_acked));
  HL_RETURN_IF_ERROR(CheckOwnRegion(request));
  HL_RETURN_IF_ERROR(InstallAll(looks));
  replica_hosts_.clear();
  for (const MemberLook& look : looks) replica_hosts_.push_back(look.hello.host);
  HL_RETURN_IF_ERROR(RememberGroup());
  HL_RETURN_IF_ERROR(Arm());
  return BindLane(request, result);
}

Status Session::Take(const TakeRequest& request, TakeResult* result) {
  const std::unique_lock lock(state_mutex_);
  if (closed_) return InvalidArgument("the store is closed");
  if (lane_ != nullptr) {
    return InvalidArgument(
        Text("the group is taken already, for ", own_.name, "; one group holds one database"));
  }
  TakeResult taken;
  const Status status = TakeStages(request, &taken);
  for (const auto& peer : peers_) peer->Disconnect();
  if (!status.ok()) {
    Disarm();
    pool_.reset();
    Say(LogLevel::kError, Text("cannot take the group: ", status.message()));
    return status;
  }
  epoch_.store(own_.epoch, std::memory_order_relaxed);
  taken_.store(true, std::memory_order_release);
  Say(LogLevel::kInfo,
      Text("took group ", taken.pairing.group, " under epoch ", own_.epoch, ", ",
           taken.files.size(), " files, ", peers_.size(), " replicas, media ",
           MediaName(pool_->media().kind()), ": ", MediaPromise(pool_->media().kind())));
  *result = std::move(taken);
  return {};
}

}  // namespace hyperloop
