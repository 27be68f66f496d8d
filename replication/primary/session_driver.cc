// Session: drives a taking. The machine decides (membership/taking.h); what it decides is carried
// out here.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "common/agent_mark.h"
#include "common/group_error.h"
#include "common/heartbeat_word.h"
#include "common/printable.h"
#include "common/random_uuid.h"
#include "hyperloop/core/text.h"
#include "membership/taking.h"
#include "primary/asking.h"
#include "primary/equalize.h"
#include "primary/look.h"
#include "primary/own_content.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWatchOwner{500};  // five heartbeats
constexpr std::chrono::milliseconds kLookInterval{50};

// An emulated medium promises only what RAM promises.
rnic::Media PromiseOf(const MediaKind& kind) {
  return kind.emulated ? rnic::Media::kRam : kind.level;
}

// An error of opening, behind what can be done about it.
Status WithRemedy(const Status& status) {
  if (!IsGroupError(status.code())) return status;
  return {status.code(), Text("open again ", kWhenAllRun, ": ", status.message())};
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

std::string OwnerName(const std::string& directory) {
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  const char* const tag = secure_getenv(kAgentVariable);
  const std::string agent = AgentMark(tag == nullptr ? "" : tag);
  return Printable(Text("process ", getpid(), " on ", host, agent, " for ", directory),
                   control::kMaxOwnerName);
}

}  // namespace

// Carries out the effects of one taking.
class Session::TakingDriver {
 public:
  TakingDriver(Session& session, const TakeRequest& request, TakeResult* result)
      : s_(session), request_(request), result_(result) {}

  Status Run() {
    const taking::Random random = RandomUuid;
    const StoreOptions& options = s_.options_;
    taking::Event event = taking::Begin{{s_.Rules(),
                                         {options.add_replica, options.remove_replica},
                                         options.region_size,
                                         options.takeover}};
    while (true) {
      const bool plans = IsFollowedByPlan(event);
      const taking::Effect effect = taking_.Step(std::move(event), random);
      if (std::holds_alternative<taking::End>(effect)) {
        s_.refused_though_all_run_ = plans && all_run_;
        break;
      }
      event = std::visit([this](const auto& each) { return CarryOut(each); }, effect);
    }
    if (const auto* refused = std::get_if<taking::Refused>(&taking_.state())) {
      BlameJoinersAlone();
      return SayWhoTookIt(refused->why);
    }
    SayTaken();
    s_.NoteHostsAndMedia(taking_.draft().looks);
    return {};
  }

 private:
  using Event = taking::Event;

  const TakePlan& plan() const { return taking_.draft().plan; }
  // If the taking ends after such an event, PlanTake has refused it.
  static bool IsFollowedByPlan(const Event& event) {
    const auto* const judged = std::get_if<taking::Judged>(&event);
    return std::holds_alternative<taking::Looked>(event) ||
           (judged != nullptr && judged->refused.has_value());
  }
  // A way that is broken beside a replica that is taken in fails at an old member, too. Such a
  // member is blamed only if it fails without that replica as well.
  void BlameJoinersAlone() {
    if (std::ranges::none_of(joiners_, &ReplicaHandle::suspect)) return;
    for (ReplicaHandle* each : s_.members_)
      if (std::ranges::count(joiners_, each) == 0) each->ClearSuspicion();
  }

  // A replica ends the queues of the owner before the one that seals it, so that a rival's taking
  // looks like replicas that are broken. One that most members were not sealed by may have been
  // refused, and then this owner can go on.
  Status SayWhoTookIt(const Status& why) {
    const bool broken = why.code() == Code::kUnavailable || why.code() == Code::kTimedOut;
    if (!broken || !sealed_) return why;
    const std::vector<Result<control::HelloReplyT>> now = AtOnce(s_.members_.size(), [&](size_t i) {
      return s_.members_[i]->Hello(s_.failure_times_.answer);
    });
    const auto taken = [&](const Result<control::HelloReplyT>& each) {
      return each.ok() && each->sealed_epoch > s_.own_.epoch;
    };
    if (static_cast<size_t>(std::ranges::count_if(now, taken)) <= now.size() / 2) return why;
    const control::HelloReplyT& one = **std::ranges::find_if(now, taken);
    return taking::TakenMeanwhile(Text("most replicas are at epoch ", one.sealed_epoch, " of ",
                                       one.sealed_owner_name, " now; ", why.message()));
  }

  Event CarryOut(const taking::AskAll&) {
    taking::Looked event{std::vector<MemberLook>(), {}};
    const bool bears_missing = s_.Rules().bears_missing();
    event.looks = LookAtReplicas(s_.replicas_, LookTimes(s_.options_, bears_missing), bears_missing,
                                 &event.missing);
    if (event.looks.ok()) LeaveOutFailed(&*event.looks, &event.missing);
    all_run_ = event.looks.ok() && event.missing.empty() &&
               std::ranges::all_of(*event.looks, [](const MemberLook& look) {
                 return look.hello.device == "ready";
               });
    return event;
  }

  // Those that failed in earlier attempts of this taking, or were refused: who shows that a replica
  // must not be trusted may be the one that failed.
  void LeaveOutFailed(std::vector<MemberLook>* looks, std::vector<MissingReplica>* missing) const {
    std::erase_if(*looks, [&](const MemberLook& look) {
      const auto failed = s_.failed_in_taking_.find(look.address);
      if (failed == s_.failed_in_taking_.end()) return false;
      missing->push_back({look.name, look.address, failed->second});
      return true;
    });
  }

  // Once for each plan.
  void UsePlan() {
    if (std::exchange(uses_plan_, true)) return;
    s_.members_ = s_.HandlesOf(plan().configuration.replicas);
    for (const auto& replica : s_.replicas_) {
      replica->SetSlowTimeout(s_.SlowTimeout(plan().region_size));
      replica->SetSlowDeadline(Clock::time_point::max(), {});
    }
    s_.times_.Begin("watching the owner");
    watched_ = Clock::now() + kWatchOwner;
  }
  Event CarryOut(const taking::Watch&) {
    UsePlan();
    std::this_thread::sleep_for(kLookInterval);
    Result<std::vector<MemberLook>> looks = s_.LookAtMembers();
    return taking::Watched{std::move(looks), Clock::now() >= watched_};
  }
  Event CarryOut(const taking::Judge&) {
    UsePlan();
    uses_plan_ = false;
    s_.stands_in_for_.reset();
    taking::Judged event;
    event.status = s_.JudgeBeforeSealing(request_, plan(), taking_.draft().looks, &event.refused);
    event.stands_in_for = s_.stands_in_for_;
    if (event.refused.has_value() && s_.Rules().bears_missing()) {
      const MemberLook& look = taking_.draft().looks[*event.refused];
      s_.failed_in_taking_.emplace(look.address, event.status.message());
      SayWithout(LogLevel::kError, {look.name, look.address, event.status.message()});
    }
    // A taking that goes on says so when it happens. Of a look the error is kAborted.
    if (s_.stands_in_for_.has_value() && event.status.code() == Code::kAborted)
      s_.Say(LogLevel::kWarn,
             Text("the replicas went back to older copies of their pools, whose place is taken by "
                  "the primary's own pool ",
                  s_.options_.pool, ": it proves that later records were acknowledged"));
    return event;
  }
  Event CarryOut(const taking::Ask&) { return taking::Asked{s_.LookAtMembers()}; }

  Event CarryOut(const taking::OpenPool& effect) {
    const taking::Draft& draft = taking_.draft();
    if (!draft.plan.ahead.empty()) s_.Say(LogLevel::kWarn, draft.plan.ahead);
    s_.SayUnreleased(draft.looks);
    s_.NoteAbsences(draft.plan, draft.looks, draft.missing);
    s_.times_.Begin("own pool");
    std::string set_aside;
    const Status opened = OpenOwnPool(s_.options_, draft.plan, &s_.pool_, &set_aside);
    if (!set_aside.empty()) {
      s_.Say(LogLevel::kWarn,
             Text("the primary's pool ", s_.options_.pool,
                  " was smaller than those of the replicas, which were resized: it is ", set_aside,
                  " now, and a new one takes its place"));
    }
    if (!opened.ok()) return taking::Opened{opened};
    return taking::Opened{{}, effect.stands_in ? LastEpoch(s_.pool_->region()) : 0};
  }

  // Each seal takes as long as the replica needs to read its region. A rival, such as the primary
  // that is taken over from, looks meanwhile, and must see that somebody is at work.
  Event CarryOut(const taking::Seal& effect) {
    s_.own_ = {effect.epoch, effect.owner, OwnerName(request_.directory)};
    s_.known_owners_ = {plan().recorded, effect.epoch};
    sealed_ = true;
    joiners_.clear();
    for (const size_t i : plan().joiners) joiners_.push_back(s_.members_[i]);
    s_.times_.Begin("sealing");
    s_.StartHeartbeat();
    Result<std::vector<MemberContent>> content = SealAll();
    s_.times_.Begin("attaching");
    return taking::Sealed{std::move(content)};
  }
  // The first member decides between those who take the group at the same time. So one of them gets
  // it, and not each a part of it.
  Result<std::vector<MemberContent>> SealAll() {
    const auto seal = [this](size_t i) {
      return s_.Seal(*s_.members_[i], taking_.draft().looks[i].hello, plan().group);
    };
    std::vector<MemberContent> sealed;
    const auto take = [&](size_t i, Result<control::SealReplyT> reply) {
      if (!reply.ok()) {
        const Status& why = reply.status();
        const std::string& ahead = plan().ahead;
        return Status(why.code(), Text(why.message(), ahead.empty() ? "" : "; ", ahead));
      }
      sealed.push_back({s_.members_[i]->name(), *reply->content});
      return Status();
    };
    HL_RETURN_IF_ERROR(take(0, seal(0)));
    std::vector<Result<control::SealReplyT>> others = AtOnce(s_.members_.size() - 1, [&](size_t i) {
      Result<control::SealReplyT> reply = seal(i + 1);
      return reply.status().code() == Code::kBusy ? SealBehindRival(i + 1, std::move(reply))
                                                  : std::move(reply);
    });
    for (size_t i = 1; i < s_.members_.size(); ++i)
      HL_RETURN_IF_ERROR(take(i, std::move(others[i - 1])));
    return sealed;
  }
  // A rival that had sealed the first member, which is this owner's now, was still sealing the
  // others when they were asked. If both gave way, nobody would have the group. Nobody has
  // installed or served anything there since, and the replica checks that once more.
  // `refused`: what the member has answered.
  Result<control::SealReplyT> SealBehindRival(size_t i, Result<control::SealReplyT> refused) {
    const control::HelloReplyT& before = taking_.draft().looks[i].hello;
    const Result<control::HelloReplyT> now = s_.members_[i]->Hello();
    const bool only_sealed =
        now.ok() && now->node_id == before.node_id && now->sealed_epoch > before.sealed_epoch &&
        now->sealed_epoch < s_.own_.epoch && now->installed_epoch == before.installed_epoch &&
        now->served_epoch == before.served_epoch;
    return only_sealed ? s_.Seal(*s_.members_[i], *now, plan().group) : std::move(refused);
  }
  Event CarryOut(const taking::Attach&) {
    const Status status = s_.AttachAll();
    if (status.ok()) s_.heartbeat_->SetTargets(s_.HeartbeatTargets(true));
    return taking::Done<taking::Attach>{status};
  }

  Event CarryOut(const taking::Equalise& effect) {
    const Status status =
        std::visit([this](const auto& from) { return MakeEqual(from); }, effect.from);
    s_.times_.Begin("arming");
    return taking::Done<taking::Equalise>{status};
  }
  Status MakeEqual(const taking::Equalise::Fresh&) {
    HL_ASSIGN_OR_RETURN(const RegionGeometry geometry, s_.GeometryFor(plan().region_size));
    HL_RETURN_IF_ERROR(FormatRegion(s_.pool_->region(), plan().group, RandomSecret(), geometry));
    HL_RETURN_IF_ERROR(s_.RedoOwn(0, {}, 0));
    s_.times_.Begin("equalising");
    return s_.PushOwn();
  }
  Status MakeEqual(const taking::Equalise::Chosen& from) {
    for (const std::string& line : from.damage)
      s_.Say(LogLevel::kError, Text("damaged: ", line, "; it becomes what the sound members hold"));
    s_.times_.Begin("pulling");
    HL_RETURN_IF_ERROR(
        PullRegion(*s_.members_[from.choice.index], s_.own_, s_.pool_->region(),
                   s_.seen_.has_value() ? s_.seen_->bytes() : std::span<std::byte>()));
    s_.seen_.reset();
    s_.times_.Begin("checking");
    std::vector<ReplicaHandle*> sources;
    for (const size_t i : from.sources.indices) sources.push_back(s_.members_[i]);
    HL_RETURN_IF_ERROR(s_.RedoOwn(from.choice.known_acked, sources, from.sources.equal));
    s_.times_.Begin("judging");
    HL_RETURN_IF_ERROR(s_.JudgeContent(request_, plan(), s_.pool_->region()));
    s_.times_.Begin("equalising");
    return s_.PushOwn(from.cut);
  }
  // The own region has what all members lost. Its log stays, so a taking that is cut short is
  // repeated (JudgeOwnInstead).
  Status MakeEqual(const taking::Equalise::OwnPool& from) {
    s_.times_.Begin("checking");
    HL_RETURN_IF_ERROR(s_.RedoOwn(from.known_acked, {}, 0));
    const uint64_t last_seq = s_.log_state_.tail.seq;
    s_.Say(LogLevel::kWarn,
           Text(from.lost, "; all of them become what it holds, up to record ", last_seq));
    s_.times_.Begin("judging");
    HL_RETURN_IF_ERROR(s_.JudgeContent(request_, plan(), s_.pool_->region()));
    s_.times_.Begin("equalising");
    return s_.PushOwn(CutLogs(last_seq, from.content));
  }

  // Only some of the members are in the first configuration of a change.
  Event CarryOut(const taking::Install& effect) {
    s_.members_ = s_.HandlesOf(effect.configuration.replicas);
    const Status status = s_.InstallAll(effect.configuration, effect.lasting);
    s_.members_ = s_.HandlesOf(plan().configuration.replicas);
    return taking::Done<taking::Install>{status};
  }
  Event CarryOut(const taking::SealAnew& effect) {
    s_.heartbeat_->SetTargets(s_.HeartbeatTargets(false));
    return taking::Done<taking::SealAnew>{s_.SealAnew(effect.epoch)};
  }
  Event CarryOut(const taking::Arm&) { return taking::Done<taking::Arm>{s_.ArmGroup()}; }
  Event CarryOut(const taking::Remember&) {
    return taking::Done<taking::Remember>{s_.RememberGroup()};
  }
  Event CarryOut(const taking::Serve&) {
    s_.times_.Begin("files");
    s_.decisions_ = request_.decisions;
    Status status = s_.MakeLane(request_);
    if (status.ok()) status = s_.BindLane(request_, result_);
    if (status.ok() && s_.decisions_ != nullptr)
      s_.decisions_->Start(s_.lane_->statistics().last_seq);
    if (status.ok()) s_.StartBulkLane(request_, result_->files, joiners_);
    return taking::Done<taking::Serve>{status};
  }
  Event CarryOut(const taking::Release& effect) {
    s_.GiveBack(effect.never_served).IgnoreError();
    return taking::Done<taking::Release>{{}};
  }
  Event CarryOut(const taking::End&) { return taking::Begin{}; }  // Run ends before

  void SayWithout(LogLevel level, const MissingReplica& missing) const {
    s_.Say(level, Text("goes on without ", missing.name, ": ", missing.why));
  }
  void SayTaken() const;

  Session& s_;
  const TakeRequest& request_;
  TakeResult* const result_;
  taking::Taking taking_;
  std::vector<ReplicaHandle*> joiners_;  // since the members are sealed
  bool uses_plan_ = false;
  bool sealed_ = false;
  bool all_run_ = false;         // all replicas answered, and their devices are ready
  Clock::time_point watched_{};  // a living owner has shown itself until then
};

void Session::TakingDriver::SayTaken() const {
  for (const MissingReplica& each : taking_.draft().missing)
    if (!each.refused) SayWithout(LogLevel::kWarn, each);  // that is said already
  if (plan().forced) {
    s_.Say(LogLevel::kWarn, Text("these were given up for good, without a majority: the group's "
                                 "history splits at epoch ",
                                 s_.own_.epoch, ", and what they hold never joins it again"));
  }
  if (!plan().change.empty()) s_.Say(LogLevel::kInfo, plan().change);
  for (const ReplicaHandle* each : joiners_)
    s_.Say(LogLevel::kInfo, Text(each->name(), " is taken in; it is sent the files that it lacks"));
}

Status Session::Look() {
  const MutexLock lock(state_mutex_);
  std::vector<MissingReplica> missing;
  const bool bears_missing = Rules().bears_missing();
  AnswerTimes times = LookTimes(options_, bears_missing);
  if (bears_missing) times = {times.most, {}, {}, 1};
  const Status status = LookAtReplicas(replicas_, times, bears_missing, &missing).status();
  for (const auto& replica : replicas_) replica->Disconnect();
  return WithRemedy(status);
}

Status Session::TakeStages(const TakeRequest& request, TakeResult* result) {
  out_of_reach_ = false;
  refused_though_all_run_ = false;
  only_prepares_ = request.only_prepares;
  stands_in_for_.reset();
  seen_.reset();
  members_.clear();
  times_.Begin("connecting");
  HL_RETURN_IF_ERROR(OpenOwnDevice());
  return TakingDriver(*this, request, result).Run();
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
  // The own pool may be the only one that has what was acknowledged. Whoever opens again decides.
  if (stands_in_for_.has_value()) return false;
  bool noted = false;
  for (const ReplicaHandle* each : members_)
    if (each->suspect() || each->silent())
      noted = failed_in_taking_.emplace(each->address(), status.message()).second || noted;
  return noted;
}

Status Session::Take(const TakeRequest& request, TakeResult* result) {
  HL_RETURN_IF_ERROR(CheckProcess());
  const MutexLock lock(state_mutex_);
  if (closed_) return InvalidArgument("the store is closed");
  if (lane_ != nullptr) {
    return InvalidArgument(
        Text("the group is taken already, for ", own_.name, "; one group holds one database"));
  }
  TakeResult taken;
  failed_in_taking_.clear();
  known_acked_ = {};
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
    return refused_though_all_run_ ? status : WithRemedy(status);
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
