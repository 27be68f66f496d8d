// Session: taking a group. Everything that can be refused is refused before the first Seal.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/group_error.h"
#include "common/heartbeat_word.h"
#include "common/printable.h"
#include "control/owner.h"
#include "files/image_files.h"
#include "files/resync.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "journal/redo.h"
#include "layout/replica_lists.h"
#include "primary/asking.h"
#include "primary/equalize.h"
#include "primary/look.h"
#include "primary/own_content.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kWatchOwner{500};  // five heartbeats
constexpr std::chrono::milliseconds kLookInterval{50};

// An emulated medium promises only what RAM promises.
rnic::Media PromiseOf(const MediaKind& kind) {
  return kind.emulated ? rnic::Media::kRam : kind.level;
}

Result<RegionGeometry> GeometryOf(const StoreOptions& options, uint64_t region_size) {
  return RegionGeometry::Compute(region_size, options.journal_size, options.table_capacity,
                                 options.extent_size);
}

// An error of opening, behind what can be done about it.
Status WithRemedy(const Status& status) {
  if (!IsGroupError(status.code())) return status;
  return {status.code(), Text("open again ", kWhenAllRun, ": ", status.message())};
}

Status HeldBy(const MemberLook& living) {
  return Busy(Text("the group is held by a living primary: ", living.hello.sealed_owner_name,
                   " (epoch ", living.hello.sealed_epoch, " at ", living.name,
                   "); stop it first, or give takeover=true to fence it"));
}

Status TakenMeanwhile(std::string_view how) {
  return Busy(Text("another primary takes the group at the same time: ", how,
                   "; try again when that one has been refused or closed"));
}

// The member of the newest sealed epoch whose owner has not closed; null: there is none.
const MemberLook* UnreleasedBy(const std::vector<MemberLook>& looks) {
  const auto newest =
      std::max_element(looks.begin(), looks.end(), [](const MemberLook& a, const MemberLook& b) {
        return a.hello.sealed_epoch < b.hello.sealed_epoch;
      });
  if (newest == looks.end() || newest->hello.sealed_epoch == 0 || newest->hello.released)
    return nullptr;
  return &*newest;
}

std::vector<MemberContent> WithoutProofOfJoiners(std::vector<MemberContent> members) {
  for (MemberContent& each : members)
    if (each.joins) each.content.acked_seq = 0;
  return members;
}

// Whether no member has found damage. One that is written to meanwhile cannot tell.
bool AllSound(const std::vector<MemberContent>& members) {
  return std::ranges::all_of(members, [](const MemberContent& each) {
    return each.settled && each.content.log_error.empty() && each.content.damage.empty();
  });
}

std::string OwnerName(const std::string& directory) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return Printable(Text("process ", getpid(), " on ", host, " for ", directory),
                   control::kMaxOwnerName);
}

}  // namespace

Result<std::vector<MemberLook>> Session::LookAtMembers() {
  std::vector<Result<control::HelloReplyT>> answers =
      HelloAll(members_, LookTimes(options_, /*bears_missing=*/false));
  std::vector<MemberLook> looks;
  for (size_t i = 0; i < members_.size(); ++i) {
    HL_ASSIGN_OR_RETURN(control::HelloReplyT hello, std::move(answers[i]));
    looks.push_back({members_[i]->name(), members_[i]->address(), std::move(hello)});
  }
  return looks;
}

Status Session::Look() {
  const std::unique_lock lock(state_mutex_);
  std::vector<MissingReplica> missing;
  const bool bears_missing = Rules().bears_missing();
  AnswerTimes times = LookTimes(options_, bears_missing);
  if (bears_missing) times = {times.most, {}, {}, 1};
  const Status status = LookAtReplicas(replicas_, times, bears_missing, &missing).status();
  for (const auto& replica : replicas_) replica->Disconnect();
  return WithRemedy(status);
}

Status Session::RefuseLivingOwner(const std::vector<MemberLook>& first) {
  if (options_.takeover || NobodyToWatch(first)) return {};
  const auto until = std::chrono::steady_clock::now() + kWatchOwner;
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookInterval);
    HL_ASSIGN_OR_RETURN(const std::vector<MemberLook> now, LookAtMembers());
    if (const MemberLook* living = LivingOwner(first, now)) return HeldBy(*living);
  }
  return {};
}

// Examining and reading took a while. An owner that was silent may have come back in that time.
Status Session::RefuseOwnerBackAgain(const std::vector<MemberLook>& first) {
  if (options_.takeover) return {};
  HL_ASSIGN_OR_RETURN(const std::vector<MemberLook> now, LookAtMembers());
  const MemberLook* living = LivingOwner(first, now);
  return living == nullptr ? Status() : HeldBy(*living);
}

// Nodes and log that contradict each other are not damaged if another primary moved them since
// `looks`: then some of it was read before that, and some after. It cannot be known while a member
// does not answer, and that is the error then.
Status Session::DamageOrRival(Status judged, const std::vector<MemberLook>& looks) {
  if (judged.code() != Code::kCorruption) return judged;
  HL_ASSIGN_OR_RETURN(const std::vector<MemberLook> now, LookAtMembers());
  const MemberLook* const moved = MovedMember(looks, now);
  if (moved == nullptr) return judged;
  return TakenMeanwhile(Text(moved->name, " is at epoch ", moved->hello.sealed_epoch, " now"));
}

// Each member examines what it holds, and the chosen one's content is read by RDMA. Neither
// disturbs anybody. What would be refused after sealing is refused now.
Status Session::JudgeBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                                   const std::vector<MemberLook>& looks,
                                   std::optional<size_t>* refused) {
  if (plan.format) {
    HL_ASSIGN_OR_RETURN(const RegionGeometry geometry, GeometryOf(options_, plan.region_size));
    HL_RETURN_IF_ERROR(CheckPairing(request, options_, plan.group, {}, 0));
    return request.judge ? request.judge(NoFiles(geometry)) : Status();
  }
  times_.Begin("examining");
  HL_ASSIGN_OR_RETURN(std::vector<MemberContent> members, ExamineAll());
  times_.Begin("reading");
  for (const size_t i : plan.joiners) members[i].joins = true;
  // A replica that has just answered, and is not found now, died a moment ago.
  const Views view_of = [&](size_t i) -> Result<std::unique_ptr<NodeView>> {
    Result<std::unique_ptr<NodeView>> view = NodeView::Connect(*device_, looks[i].hello.host);
    if (view.status().code() != Code::kNotFound) return view;
    return Unavailable(Text(looks[i].name, ": ", view.status().message()));
  };
  const auto check_joiners = [&](std::span<const std::byte> image) -> Status {
    for (const size_t i : plan.joiners) {
      if (looks[i].hello.installed_epoch == 0) continue;
      HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, view_of(i));
      const Status judged = CheckOverwriting(looks[i].name, *view, image);
      if (judged.code() == Code::kInvalidArgument) *refused = i;
      HL_RETURN_IF_ERROR(judged);
    }
    return {};
  };
  const Result<Choice> chosen = ChooseMember(members, plan.unserved);
  if (!chosen.ok()) {
    const Result<std::unique_ptr<Pool>> own =
        JudgeOwnInstead(plan, chosen.status(), members, view_of, looks);
    if (own.status().code() == Code::kCorruption && !plan.joiners.empty())
      HL_RETURN_IF_ERROR(JudgeWithoutJoiners(plan, members, view_of, looks, check_joiners));
    HL_RETURN_IF_ERROR(own.status());
    HL_RETURN_IF_ERROR(check_joiners((*own)->region()));
    times_.Begin("judging");
    return JudgeContent(request, plan, (*own)->region());
  }
  const Choice& choice = *chosen;
  const uint64_t last_seq = members[choice.index].content.last_seq;
  std::unique_ptr<Pool> own = AllSound(members) ? OwnLikeBest(plan, last_seq) : nullptr;
  std::span<std::byte> image;
  if (own != nullptr) {
    image = own->region();
    HL_RETURN_IF_ERROR(check_joiners(image));
  } else {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, view_of(choice.index));
    HL_ASSIGN_OR_RETURN(seen_, view->Snapshot());
    image = seen_->bytes();
    HL_ASSIGN_OR_RETURN(own, JudgeOwnBeside(plan, {looks[choice.index].name, last_seq, image}));
    HL_RETURN_IF_ERROR(check_joiners(own != nullptr ? own->region() : image));
    if (own != nullptr) {
      times_.Begin("judging");
      return JudgeContent(request, plan, own->region());
    }
  }
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, image.size()));
  HL_RETURN_IF_ERROR(Redo(image, info, 0).status());
  const SourceOrder order = SourcesFor(choice, members);
  std::vector<std::string> names;
  for (const size_t i : order.indices) names.push_back(members[i].name);
  const MemberFetch fetch = [&](size_t member, uint64_t offset,
                                std::span<std::byte> out) -> Status {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> other, view_of(order.indices[member]));
    return other->Read(offset, out);
  };
  HL_RETURN_IF_ERROR(MakeSound(image, info, names, {names.size(), order.equal, fetch}));
  times_.Begin("judging");
  return JudgeContent(request, plan, image);
}

// Neither a log nor the own pool will do. Perhaps only a joiner proves what they lack: then one of
// them would do without it, and `check_joiners` refuses it by name.
Status Session::JudgeWithoutJoiners(const TakePlan& plan, const std::vector<MemberContent>& members,
                                    const Views& views, const std::vector<MemberLook>& looks,
                                    const ContentCheck& check_joiners) {
  const std::vector<MemberContent> others = WithoutProofOfJoiners(members);
  const Result<Choice> best = ChooseMember(others, plan.unserved);
  if (best.ok()) {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, views(best->index));
    HL_ASSIGN_OR_RETURN(const RegionImage image, view->Snapshot());
    return check_joiners(image.bytes());
  }
  const Result<std::unique_ptr<Pool>> own =
      JudgeOwnInstead(plan, best.status(), others, views, looks);
  if (own.ok()) return check_joiners((*own)->region());
  return own.status().code() == Code::kCorruption ? Status() : own.status();
}

Result<std::vector<MemberContent>> Session::ExamineAll() {
  std::vector<Result<control::ExamineReplyT>> replies = AtOnce(members_.size(), [this](size_t i) {
    return members_[i]->Call<control::ExamineReplyT>(control::ExamineRequestT{},
                                                     members_[i]->slow_timeout());
  });
  std::vector<MemberContent> members;
  for (size_t i = 0; i < members_.size(); ++i) {
    HL_ASSIGN_OR_RETURN(control::ExamineReplyT reply, std::move(replies[i]));
    if (reply.content == nullptr)
      return Corruption(Text(members_[i]->name(), " answered without content"));
    // A primary was writing, so these numbers are of different moments. They do not prove that a
    // record is missing.
    if (!reply.settled)
      reply.content->acked_seq = std::min(reply.content->acked_seq, reply.content->last_seq);
    members.push_back({members_[i]->name(), std::move(*reply.content)});
    members.back().settled = reply.settled;
  }
  return members;
}

Status Session::MakeSound(std::span<std::byte> image, const RegionInfo& info,
                          const std::vector<std::string>& names, const MendSources& sources) const {
  HL_ASSIGN_OR_RETURN(const FileTable table, FileTable::Load(image, info));
  const std::vector<ExtentDamage> damaged = VerifyExtents(image, info, table);
  if (damaged.empty()) return {};
  HL_ASSIGN_OR_RETURN(const std::vector<MendedExtent> mended,
                      MendExtents(image, info, table, damaged, sources));
  for (const MendedExtent& each : mended) {
    Say(LogLevel::kWarn,
        Text(each.damage.Text(info, table), "; the sound bytes are those of ", names[each.member]));
  }
  return {};
}

Status Session::JudgeContent(const TakeRequest& request, const TakePlan& plan,
                             std::span<const std::byte> image) const {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, image.size()));
  if (info.group != plan.group)
    return Corruption("the region is of another group than its node says");
  HL_ASSIGN_OR_RETURN(FileTable table, FileTable::Load(image, info));
  HL_ASSIGN_OR_RETURN(const Binding binding,
                      ParseBindingBlock(image.subspan(info.geometry.binding_offset), info));
  HL_ASSIGN_OR_RETURN(
      const Configuration logged,
      ParseConfigurationBlock(image.subspan(info.geometry.configuration_offset()), info));
  // Where the own log stands in, it was compared with the members that are there (own_content.h).
  if (!stands_in_for_.has_value()) HL_RETURN_IF_ERROR(CheckLogged(plan, logged));
  const size_t files = table.List().size();
  HL_RETURN_IF_ERROR(CheckPairing(request, options_, info.group, binding, files));
  if (!request.judge) return {};
  HeldFiles held(BulkConnections());
  const auto holds = [&](const WholeFile& file) { return held.Holds(file); };
  // After that only these replicas decide, and the one that leaves is not asked any more.
  const bool removes = !options_.remove_replica.empty() &&
                       plan.recorded.Has(options_.remove_replica) &&
                       !plan.configuration.Has(options_.remove_replica);
  bool few = false;
  const auto scarce = [&](const WholeFile& file) {
    const bool found = removes && held.FewHold(file);
    few = few || found;
    return found;
  };
  const Status judged = request.judge(ImageFiles(image, info, std::move(table), holds, scarce));
  const std::string unanswered = few ? held.Unanswered() : "";
  if (judged.ok() || unanswered.empty()) return judged;
  return {judged.code(),
          Text(judged.message(), "; could not be asked which files it holds: ", unanswered)};
}

Result<control::SealReplyT> Session::Seal(ReplicaHandle& replica, const control::HelloReplyT& seen,
                                          const Uuid& group) {
  auto request = OwnerRequest<control::SealRequestT>(own_);
  request.owner_name = own_.name;
  request.group = FormatUuid(group);
  request.seen_sealed_epoch = seen.sealed_epoch;
  request.seen_installed_epoch = seen.installed_epoch;
  request.seen_served_epoch = seen.served_epoch;
  const auto until = std::chrono::steady_clock::now() + replica.slow_timeout();
  while (true) {  // once, unless this replica missed more takings than one step allows
    request.epoch = std::min(own_.epoch, request.seen_sealed_epoch + control::kMaxEpochStep);
    request.goes_on = request.epoch != own_.epoch;
    Result<control::SealReplyT> reply =
        replica.Call<control::SealReplyT>(request, replica.slow_timeout());
    if (reply.status().code() == Code::kFenced) {
      return TakenMeanwhile(reply.status().message());
    }
    if (!reply.ok()) return reply;
    if (!request.goes_on && reply->content == nullptr)
      return Corruption(Text(replica.name(), " answered without content"));
    if (!request.goes_on) return reply;
    request.seen_sealed_epoch = request.epoch;
    if (std::chrono::steady_clock::now() < until) continue;
    return Unavailable(Text(replica.name(), " is at epoch ", request.epoch, " on its way to epoch ",
                            own_.epoch, " of the others; the next try goes on from there"));
  }
}

// The first member decides between those who take the group at the same time. So one of them gets
// it, and not each a part of it.
Result<std::vector<MemberContent>> Session::SealAll(const TakePlan& plan,
                                                    const std::vector<MemberLook>& looks) {
  const auto seal = [&](size_t i) { return Seal(*members_[i], looks[i].hello, plan.group); };
  std::vector<MemberContent> sealed;
  const auto take = [&](size_t i, Result<control::SealReplyT> reply) {
    if (!reply.ok()) {
      const Status& why = reply.status();
      return Status(why.code(), Text(why.message(), plan.ahead.empty() ? "" : "; ", plan.ahead));
    }
    sealed.push_back({members_[i]->name(), *reply->content});
    return Status();
  };
  HL_RETURN_IF_ERROR(take(0, seal(0)));
  std::vector<Result<control::SealReplyT>> others =
      AtOnce(members_.size() - 1, [&](size_t i) { return seal(i + 1); });
  for (size_t i = 1; i < members_.size(); ++i)
    HL_RETURN_IF_ERROR(take(i, std::move(others[i - 1])));
  for (const size_t i : plan.joiners) sealed[i].joins = true;
  return sealed;
}

Status Session::AttachAll() {
  return AllAtOnce(members_.size(), [this](size_t i) -> Status {
    ReplicaHandle& replica = *members_[i];
    HL_RETURN_IF_ERROR(
        replica.Attach(*device_, own_, options_.ack_timeout / 2, failure_times_.silence));
    if (replica.region().size == pool_->region().size()) return {};
    return Corruption(Text(replica.name(), " gave out a region of ", replica.region().size, " B"));
  });
}

Status Session::FormatOwn(const TakePlan& plan) {
  HL_ASSIGN_OR_RETURN(const RegionGeometry geometry, GeometryOf(options_, plan.region_size));
  return FormatRegion(pool_->region(), plan.group, RandomSecret(), geometry);
}

Status Session::RedoOwn(uint64_t known_acked, std::span<ReplicaHandle* const> members,
                        size_t equal) {
  const auto own = pool_->region();
  HL_ASSIGN_OR_RETURN(info_, ParseSuperblock(own, own.size()));
  HL_ASSIGN_OR_RETURN(log_state_, Redo(own, info_, known_acked));
  HL_RETURN_IF_ERROR(ParseBindingBlock(own.subspan(info_.geometry.binding_offset), info_).status());
  HL_RETURN_IF_ERROR(
      ParseConfigurationBlock(own.subspan(info_.geometry.configuration_offset()), info_).status());
  std::vector<std::string> names;
  for (const ReplicaHandle* each : members) names.push_back(each->name());
  const MemberFetch fetch = [&](size_t member, uint64_t offset, std::span<std::byte> out) {
    ReplicaHandle& replica = *members[member];
    return replica.remote_access().Read(replica.region(), offset, out);
  };
  return MakeSound(own, info_, names, {names.size(), equal, fetch});
}

// No file leaves the region before all members say that files may.
//
// The log's head stays where it was. A head says that what lies before it is kept, and that is true
// only once the configuration is installed.
Status Session::PushOwn(std::vector<bool> cut) {
  cut.resize(members_.size());
  const auto own = pool_->region();
  AddFeatures(own);
  HL_ASSIGN_OR_RETURN(const FileTable table, FileTable::Load(own, info_));
  const std::vector<Range> in_use = RangesInUse(info_.geometry, table.map);
  for (const Range& range : in_use)
    HL_RETURN_IF_ERROR(pool_->media().Persist(own.data() + range.offset, range.size));
  return PushRegion(members_, own_, own, in_use, info_, log_state_, cut);
}

// The regions are equal already, and nobody has served since.
Status Session::InstallBeforeChange(const TakePlan& plan) {
  members_ = HandlesOf(plan.before_change->replicas);
  const Status installed = InstallAll(*plan.before_change, /*lasting=*/true);
  members_ = HandlesOf(plan.configuration.replicas);
  HL_RETURN_IF_ERROR(installed);
  heartbeat_->SetTargets(HeartbeatTargets(false));
  HL_RETURN_IF_ERROR(SealAnew(own_.epoch + 1));
  HL_RETURN_IF_ERROR(AttachAll());
  heartbeat_->SetTargets(HeartbeatTargets(true));
  return {};
}

Status Session::InstallAll(Configuration next, bool lasting) {
  auto request = OwnerRequest<control::InstallRequestT>(own_);
  request.lasting = lasting;
  ListReplicas(next.replicas, &request.nodes, &request.replicas);
  ListReplicas(next.absent, &request.absent_nodes, &request.absent_replicas);
  request.branch_epoch = next.branch.epoch;
  request.branch_owner = BranchOwner(next.branch);
  Absences absences;
  for (const Configuration::Replica& each : next.absent)
    if (const auto known = absences_.find(each.address); known != absences_.end())
      absences.insert(*known);
  request.absences = FormatAbsences(absences);
  for (ReplicaHandle* replica : members_)
    HL_RETURN_IF_ERROR(replica->Call<control::DoneT>(request).status());
  configuration_ = std::move(next);
  configuration_.epoch = own_.epoch;
  configuration_.owner = OwnerDigest(own_.owner);
  looks_before_.clear();
  epoch_.store(own_.epoch, std::memory_order_relaxed);
  NotePresent();
  return {};
}

// The pool is assigned to the group only after the installation, so that the pool of a taking that
// was cut short belongs to no group.
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
  HL_ASSIGN_OR_RETURN(taken.files, lane_->Files());
  Binding binding = lane_->binding();
  // A directory that is not paired becomes a new database, whether the group is empty, is restored
  // into it, or is about to be emptied. The directory that held the group's database before has
  // local files that will no longer fit, and must not be set to what the group holds from now on. A
  // directory that is bound again keeps its database.
  const std::string& named = request.pairing.database;
  Uuid database = binding.database;
  if (named.empty()) {
    database = RandomUuid();
  } else {
    HL_ASSIGN_OR_RETURN(database, ParseUuid(named));
  }
  if (database != binding.database || request.directory != binding.directory) {
    binding = {database, request.directory};
    HL_RETURN_IF_ERROR(lane_->Bind(binding));
  }
  taken.pairing = {FormatUuid(info_.group), FormatUuid(binding.database)};
  taken.epoch = own_.epoch;
  for (const Configuration::Replica& each : configuration_.absent)
    taken.left_out.push_back(each.address);
  *result = std::move(taken);
  return {};
}

// Makes the own region and every member equal to the chosen one of the sealed members.
Status Session::TakeRegion(const TakeRequest& request, const TakePlan& plan,
                           const std::vector<MemberContent>& sealed) {
  if (plan.format) {
    HL_RETURN_IF_ERROR(FormatOwn(plan));
    HL_RETURN_IF_ERROR(RedoOwn(0, {}, 0));
    times_.Begin("equalising");
    return PushOwn();
  }
  const Result<Choice> chosen = ChooseMember(sealed, plan.unserved);
  if (stands_in_for_.has_value()) return TakeOwnRegion(request, plan, chosen, sealed);
  if (!chosen.ok()) return chosen.status();
  const Choice& choice = *chosen;
  for (const std::string& line : DescribeDamage(sealed))
    Say(LogLevel::kError, Text("damaged: ", line, "; it becomes what the sound members hold"));
  times_.Begin("pulling");
  HL_RETURN_IF_ERROR(PullRegion(*members_[choice.index], own_, pool_->region(),
                                seen_.has_value() ? seen_->bytes() : std::span<std::byte>()));
  seen_.reset();
  times_.Begin("checking");
  const SourceOrder order = SourcesFor(choice, sealed);
  std::vector<ReplicaHandle*> sources;
  for (const size_t i : order.indices) sources.push_back(members_[i]);
  HL_RETURN_IF_ERROR(RedoOwn(choice.known_acked, sources, order.equal));
  times_.Begin("judging");
  HL_RETURN_IF_ERROR(JudgeContent(request, plan, pool_->region()));
  times_.Begin("equalising");
  return PushOwn(CutLogs(choice, sealed));
}

// A replica that must not be overwritten counts as missing, where replicas may be missing.
Result<TakePlan> Session::PlanAndJudge(const TakeRequest& request, std::vector<MemberLook>* looks,
                                       std::vector<MissingReplica>* missing) {
  while (true) {
    HL_ASSIGN_OR_RETURN(TakePlan plan, PlanTake(*looks, *missing, options_.region_size, Rules(),
                                                {options_.add_replica, options_.remove_replica}));
    members_ = HandlesOf(plan.configuration.replicas);
    for (const auto& replica : replicas_) {
      replica->SetSlowTimeout(SlowTimeout(plan.region_size));
      replica->SetSlowDeadline(std::chrono::steady_clock::time_point::max(), {});
    }
    times_.Begin("watching the owner");
    HL_RETURN_IF_ERROR(RefuseLivingOwner(*looks));
    std::optional<size_t> refused;
    const Status judged =
        DamageOrRival(JudgeBeforeSealing(request, plan, *looks, &refused), *looks);
    if (judged.ok()) return plan;
    if (!refused.has_value() || !Rules().bears_missing()) return judged;
    const auto look = looks->begin() + static_cast<std::ptrdiff_t>(*refused);
    missing->push_back({look->name, look->address, judged.message(), /*refused=*/true});
    looks->erase(look);
    stands_in_for_.reset();
  }
}

Status Session::TakeStages(const TakeRequest& request, TakeResult* result) {
  out_of_reach_ = false;
  only_prepares_ = request.only_prepares;
  looks_before_.clear();
  unproven_ = nullptr;
  stands_in_for_.reset();
  seen_.reset();
  members_.clear();
  times_.Begin("connecting");
  HL_RETURN_IF_ERROR(OpenOwnDevice());
  std::vector<MissingReplica> missing;
  HL_ASSIGN_OR_RETURN(std::vector<MemberLook> looks,
                      LookAtReplicas(replicas_, LookTimes(options_, Rules().bears_missing()),
                                     Rules().bears_missing(), &missing));
  std::erase_if(looks, [&](const MemberLook& look) {
    const auto failed = failed_in_taking_.find(look.address);
    if (failed == failed_in_taking_.end()) return false;
    missing.push_back({look.name, look.address, failed->second});
    return true;
  });
  if (Rules().bears_missing()) LeaveOutUnfit(&looks, &missing);
  HL_ASSIGN_OR_RETURN(const TakePlan plan, PlanAndJudge(request, &looks, &missing));
  if (!plan.ahead.empty()) Say(LogLevel::kWarn, plan.ahead);
  SayUnreleased(looks);
  std::vector<ReplicaHandle*> joiners;
  for (const size_t i : plan.joiners) joiners.push_back(members_[i]);
  NoteAbsences(plan, looks, missing);
  times_.Begin("own pool");
  std::string set_aside;
  const Status opened = OpenOwnPool(options_, plan, &pool_, &set_aside);
  if (!set_aside.empty()) {
    Say(LogLevel::kWarn, Text("the primary's pool ", options_.pool,
                              " was smaller than those of the replicas, which were resized: it is ",
                              set_aside, " now, and a new one takes its place"));
  }
  HL_RETURN_IF_ERROR(opened);
  HL_RETURN_IF_ERROR(RefuseOwnerBackAgain(looks));
  own_ = {plan.epoch, RandomUuid(), OwnerName(request.directory)};
  if (stands_in_for_.has_value()) own_.epoch = std::max(own_.epoch, LastEpoch(pool_->region()) + 1);
  Configuration next = plan.configuration;
  if (plan.forced) next.branch = {own_.epoch, OwnerDigest(own_.owner)};
  times_.Begin("sealing");
  // Each seal takes as long as the replica needs to read its region. A rival, such as the primary
  // that is taken over from, looks meanwhile, and must see that somebody is at work.
  StartHeartbeat();
  const Result<std::vector<MemberContent>> sealed = SealAll(plan, looks);
  Status status = sealed.status();
  times_.Begin("attaching");
  if (status.ok()) status = AttachAll();
  if (status.ok()) {
    heartbeat_->SetTargets(HeartbeatTargets(true));
    status = TakeRegion(request, plan, *sealed);
  }
  times_.Begin("arming");
  if (status.ok() && plan.before_change.has_value()) status = InstallBeforeChange(plan);
  if (status.ok()) status = InstallAll(std::move(next));
  if (status.ok()) status = ArmGroup();
  if (status.ok()) status = RememberGroup();
  const bool never_served = !status.ok();  // the lane begins with a record
  times_.Begin("files");
  if (status.ok()) status = MakeLane();
  if (status.ok()) status = BindLane(request, result);
  if (status.ok()) StartBulkLane(request, result->files, joiners);
  if (!status.ok()) {
    GiveBack(never_served).IgnoreError();
    return status;
  }
  SayTaken(plan, missing, joiners);
  NoteHostsAndMedia(looks);
  return {};
}

void Session::SayUnreleased(const std::vector<MemberLook>& looks) const {
  const MemberLook* const former = UnreleasedBy(looks);
  if (former == nullptr) return;
  Say(LogLevel::kWarn,
      Text(former->hello.sealed_owner_name, " (epoch ", former->hello.sealed_epoch, " at ",
           former->name, ") has not released the group; its last sign of life was at ",
           HeartbeatTime(former->hello.heartbeat)));
}

void Session::NoteAbsences(const TakePlan& plan, const std::vector<MemberLook>& looks,
                           const std::vector<MissingReplica>& missing) {
  absences_.clear();
  const auto leaves_out = [](const MemberLook& look, const std::string& address) {
    return std::ranges::count(look.hello.absent_replicas, address) != 0;
  };
  for (const Configuration::Replica& absent : plan.configuration.absent) {
    for (const MissingReplica& each : missing)
      if (each.address == absent.address)
        absences_[absent.address] =
            Text("since ", HeartbeatTime(NextHeartbeat(0)), " (an opening): ", each.why);
    for (const MemberLook& look : looks) {
      const Absences known = ParseAbsences(look.hello.absences);
      const auto found = known.find(absent.address);
      if (found != known.end() && leaves_out(look, absent.address))
        absences_[absent.address] = found->second;
    }
    for (const MissingReplica& each : missing)
      if (each.refused && each.address == absent.address)
        Reword(each.why, &absences_[absent.address]);
  }
}

void Session::SayTaken(const TakePlan& plan, const std::vector<MissingReplica>& missing,
                       const std::vector<ReplicaHandle*>& joiners) const {
  for (const MissingReplica& each : missing)
    Say(LogLevel::kWarn, Text("goes on without ", each.name, ": ", each.why));
  if (plan.forced) {
    Say(LogLevel::kWarn, Text("these were given up for good, without a majority: the group's "
                              "history splits at epoch ",
                              own_.epoch, ", and what they hold never joins it again"));
  }
  if (!plan.change.empty()) Say(LogLevel::kInfo, plan.change);
  for (const ReplicaHandle* each : joiners)
    Say(LogLevel::kInfo, Text(each->name(), " is taken in; it is sent the files that it lacks"));
}

void Session::NoteHostsAndMedia(const std::vector<MemberLook>& looks) {
  replica_hosts_.clear();
  media_.store(PromiseOf(pool_->media().kind()), std::memory_order_relaxed);
  for (const MemberLook& look : looks) {
    replica_hosts_.push_back(look.hello.host);
    LowerMedia(look.hello.media);
  }
}

bool Session::LowerMedia(const std::string& name) {
  const Result<MediaKind> media = ParseMedia(name);
  if (!media.ok() || PromiseOf(*media) >= media_) return false;
  media_.store(PromiseOf(*media), std::memory_order_relaxed);
  return true;
}

bool Session::NoteFailedInTaking(const Status& status) {
  if (!Rules().bears_missing() || !IsGroupError(status.code())) return false;
  bool noted = false;
  for (const ReplicaHandle* each : members_)
    if (each->suspect() || each->silent())
      noted = failed_in_taking_.emplace(each->address(), status.message()).second || noted;
  return noted;
}

Status Session::Take(const TakeRequest& request, TakeResult* result) {
  const std::unique_lock lock(state_mutex_);
  if (closed_) return InvalidArgument("the store is closed");
  if (lane_ != nullptr) {
    return InvalidArgument(
        Text("the group is taken already, for ", own_.name, "; one group holds one database"));
  }
  TakeResult taken;
  failed_in_taking_.clear();
  times_ = {};
  Status status;
  do {
    for (const auto& replica : replicas_) replica->ClearSuspicion();
    status = TakeStages(request, &taken);
    for (const auto& replica : replicas_) replica->Disconnect();
    if (status.ok()) break;
    Disarm();
    pool_.reset();
  } while (std::exchange(found_cut_, false) || NoteFailedInTaking(status));
  if (status.ok()) {
    absent_watch_ = std::make_unique<AbsentWatch>(
        replicas_.front()->trust(),
        AbsentWatch::Options{options_.heartbeat_timeout, Rules(),
                             [this, trust = replicas_.front()->trust()](
                                 const Answered& joiner, const std::vector<Answered>& members) {
                               return TryWay(trust, joiner, members);
                             },
                             [this](size_t of) { return FewHold(of); }},
        log_, PinnedCpu(*device_));
    WatchAbsent();
  }
  if (!status.ok()) {
    Say(LogLevel::kError, Text("cannot take the group: ", status.message()));
    return WithRemedy(status);
  }
  taken_.store(true, std::memory_order_release);
  Say(LogLevel::kInfo, Text("took group ", taken.pairing.group, " under epoch ", own_.epoch, ", ",
                            taken.files.size(), " files, ", members_.size(), " of ",
                            replicas_.size(), " replicas, media ", MediaName(pool_->media().kind()),
                            ": ", MediaPromise(pool_->media().kind())));
  Say(LogLevel::kInfo, Text("the taking took ", times_.End()));
  StartMetrics();
  StartLeaving(request);
  StartTicking();  // last: from now on its thread may bring the group back
  *result = std::move(taken);
  return {};
}

}  // namespace hyperloop
