// Session: what a taking is made of: judging the members, sealing, equalising, installing. What
// follows what, membership/taking.h says.
#include <algorithm>

#include "common/group_error.h"
#include "common/random_uuid.h"
#include "control/owner.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "inspect/resync.h"
#include "log/image_files.h"
#include "log/redo.h"
#include "membership/replica_lists.h"
#include "membership/taking.h"
#include "primary/asking.h"
#include "primary/equalize.h"
#include "primary/own_content.h"
#include "primary/pairing.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

std::vector<MemberContent> WithoutProofOfJoiners(std::vector<MemberContent> members) {
  for (MemberContent& each : members)
    if (each.joins) each.content.acked_seq = 0;
  return members;
}

// The way out if members that count have different histories.
constexpr char kPutBack[] =
    ". Replicas went back to older copies of their pools: start all of them on the pools that they "
    "had, if they are not lost";

// Whose log it is, if the own pool's stands in.
constexpr char kOwnPool[] = "the primary's own pool";

// Whether no member has found damage. One that is written to meanwhile cannot tell.
bool AllSound(const std::vector<MemberContent>& members) {
  return std::ranges::all_of(members, [](const MemberContent& each) {
    return each.settled && each.content.log_error.empty() && each.content.damage.empty();
  });
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

// Each member examines what it holds, and the chosen one's content is read by RDMA. Neither
// disturbs anybody. What would be refused after sealing is refused now.
Status Session::JudgeBeforeSealing(const TakeRequest& request, const TakePlan& plan,
                                   const std::vector<MemberLook>& looks,
                                   std::optional<size_t>* refused) {
  if (plan.format) {
    HL_ASSIGN_OR_RETURN(const RegionGeometry geometry, GeometryFor(plan.region_size));
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
  // Of one owner, one log is the beginning of the other, and any member may have another owner's.
  const auto check_others = [&](std::span<const std::byte> image,
                                const std::string& whose) -> Status {
    std::vector<size_t> others;
    for (size_t i = 0; i < looks.size(); ++i)
      if (looks[i].hello.installed_epoch != 0 &&
          (members[i].joins || !HasInstalled(looks[i].hello, plan.recorded)))
        others.push_back(i);
    const std::vector<Status> judgements = AtOnce(others.size(), [&](size_t k) -> Status {
      const MemberLook& look = looks[others[k]];
      HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, view_of(others[k]));
      const HeldBy by = IsOfRival(look.hello, plan.recorded) ? HeldBy::kRival : HeldBy::kMember;
      return CheckDropsNothing(look.name, *view, image, whose, by);
    });
    for (size_t k = 0; k < others.size(); ++k) {
      const size_t i = others[k];
      const control::HelloReplyT& hello = looks[i].hello;
      const Status& judged = judgements[k];
      const bool is_refused =
          judged.code() == Code::kInvalidArgument || judged.code() == Code::kCorruption;
      if (is_refused && !members[i].joins) HL_RETURN_IF_ERROR(CheckUnmoved(i, hello));
      if (judged.code() == Code::kInvalidArgument && !members[i].joins) {
        *refused = i;
        return InvalidArgument(Text(judged.message(), kPutBack));
      }
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
      HL_RETURN_IF_ERROR(JudgeWithoutJoiners(plan, members, view_of, looks, check_others));
    HL_RETURN_IF_ERROR(own.status());
    HL_RETURN_IF_ERROR(CheckReaches((*own)->region()));
    HL_RETURN_IF_ERROR(check_others((*own)->region(), kOwnPool));
    times_.Begin("judging");
    return JudgeContent(request, plan, (*own)->region());
  }
  const Choice& choice = *chosen;
  const std::string& best = looks[choice.index].name;
  const uint64_t last_seq = members[choice.index].content.last_seq;
  std::unique_ptr<Pool> own = AllSound(members) ? OwnLikeBest(plan, last_seq) : nullptr;
  std::span<std::byte> image;
  if (own != nullptr) {
    image = own->region();
    HL_RETURN_IF_ERROR(CheckReaches(image));
    HL_RETURN_IF_ERROR(check_others(image, best));
  } else {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, view_of(choice.index));
    HL_ASSIGN_OR_RETURN(seen_, view->Snapshot());
    image = seen_->bytes();
    HL_ASSIGN_OR_RETURN(own, JudgeOwnBeside(plan, {best, last_seq, image}));
    if (own == nullptr) {
      HL_RETURN_IF_ERROR(CheckReaches(image));
      HL_RETURN_IF_ERROR(check_others(image, best));
    } else {
      HL_RETURN_IF_ERROR(CheckReaches(own->region()));
      HL_RETURN_IF_ERROR(check_others(own->region(), kOwnPool));
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

// What a living primary installs and writes meanwhile makes a member's log another one than that of
// the member that was read before it.
Status Session::CheckUnmoved(size_t member, const control::HelloReplyT& seen) const {
  HL_ASSIGN_OR_RETURN(const control::HelloReplyT now, members_[member]->Hello());
  if (now.sealed_epoch == seen.sealed_epoch && now.installed_epoch == seen.installed_epoch &&
      now.served_epoch == seen.served_epoch && now.heartbeat == seen.heartbeat)
    return {};
  return taking::TakenMeanwhile(Text(members_[member]->name(), " is at epoch ", now.sealed_epoch,
                                     " of ", now.sealed_owner_name, " now"));
}

void Session::NoteAcked(std::span<const MemberContent> members) {
  for (const MemberContent& each : members)
    if (each.content.acked_seq > known_acked_.seq)
      known_acked_ = {each.content.acked_seq, each.name};
}

// In the first attempt, whoever proves it is there (ChooseMember).
Status Session::CheckReaches(std::span<const std::byte> image) const {
  if (failed_in_taking_.empty()) return {};
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(image, image.size()));
  HL_ASSIGN_OR_RETURN(const LogState log, ScanLog(image, info));
  if (log.tail.seq >= known_acked_.seq) return {};
  return Corruption(Text("open again when ", known_acked_.says,
                         " runs, or when the others are on the pools that they had: they went back "
                         "to older copies; record ",
                         known_acked_.seq,
                         " was acknowledged, as it said before it failed, and "
                         "the best log of the others ends at ",
                         log.tail.seq));
}

// Neither a log nor the own pool will do. Perhaps only a joiner proves what they lack: then one of
// them would do without it, and `check_others` refuses it by name.
Status Session::JudgeWithoutJoiners(const TakePlan& plan, const std::vector<MemberContent>& members,
                                    const Views& views, const std::vector<MemberLook>& looks,
                                    const ContentCheck& check_others) {
  const std::vector<MemberContent> others = WithoutProofOfJoiners(members);
  const Result<Choice> best = ChooseMember(others, plan.unserved);
  if (best.ok()) {
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, views(best->index));
    HL_ASSIGN_OR_RETURN(const RegionImage image, view->Snapshot());
    return check_others(image.bytes(), looks[best->index].name);
  }
  const Result<std::unique_ptr<Pool>> own =
      JudgeOwnInstead(plan, best.status(), others, views, looks);
  if (own.ok()) return check_others((*own)->region(), kOwnPool);
  return own.status().code() == Code::kCorruption ? Status() : own.status();
}

Result<std::vector<MemberContent>> Session::ExamineAll() {
  std::vector<Result<control::ExamineReplyT>> replies = AtOnce(members_.size(), [this](size_t i) {
    return members_[i]->Call<control::ExamineReplyT>(control::ExamineRequestT{},
                                                     members_[i]->slow_timeout());
  });
  std::vector<MemberContent> members;
  Status first;
  for (size_t i = 0; i < members_.size(); ++i) {
    Status failed = replies[i].status();
    if (failed.ok() && replies[i]->content == nullptr)
      failed = Corruption(Text(members_[i]->name(), " answered without content"));
    if (!failed.ok()) {
      if (first.ok()) first = std::move(failed);
      continue;
    }
    control::ExamineReplyT& reply = *replies[i];
    // A primary was writing, so these numbers are of different moments. They do not prove that a
    // record is missing.
    if (!reply.settled)
      reply.content->acked_seq = std::min(reply.content->acked_seq, reply.content->last_seq);
    members.push_back({members_[i]->name(), std::move(*reply.content)});
    members.back().settled = reply.settled;
  }
  NoteAcked(
      members);  // also if another one failed: who proves more may be gone in the next attempt
  HL_RETURN_IF_ERROR(first);
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
      return taking::TakenMeanwhile(reply.status().message());
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

Result<RegionGeometry> Session::GeometryFor(uint64_t region_size) const {
  return RegionGeometry::Compute(region_size, options_.journal_size, options_.table_capacity,
                                 options_.extent_size);
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
  const Branch& branch = configuration_.branch;
  if (branch.epoch != 0) taken.branch = Text(branch.epoch, " ", FormatUuid(branch.owner));
  for (const Configuration::Replica& each : configuration_.absent)
    taken.left_out.push_back(each.address);
  *result = std::move(taken);
  return {};
}

}  // namespace hyperloop
