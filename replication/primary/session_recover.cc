// Session: bringing back a group that stopped answering. All of this runs under the lane's mutex.
#include <algorithm>
#include <thread>

#include "common/group_error.h"
#include "common/heartbeat_word.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "primary/asking.h"
#include "primary/equalize.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryPause{50};
// A living owner's heartbeat moves five times in this time.
constexpr std::chrono::milliseconds kWatchRival{500};
// A replica that runs answers at once. One that does not must not use up the others' time.
constexpr std::chrono::milliseconds kMostHello{1000};
constexpr std::chrono::nanoseconds kLeastHello = std::chrono::milliseconds(200);
// The lowest rate at which a joiner is expected to read its region, because writes wait for it.
constexpr uint64_t kJoinerBytesPerSecond = 1u << 30;

// Makes errors retryable that come from a member's answer. It may be garbled or out of date now,
// and right the next time.
Status Retryable(const Status& status) {
  const bool passes = status.code() == Code::kFenced || status.code() == Code::kCorruption;
  return passes ? Unavailable(status.message()) : status;
}

// Whether no primary can have written to the replica between these two answers: whoever writes has
// its promise, and moves its heartbeat.
bool IsUnwritten(const control::HelloReplyT& before, const control::HelloReplyT& now) {
  return before.node_id == now.node_id && before.sealed_epoch == now.sealed_epoch &&
         before.installed_epoch == now.installed_epoch && before.heartbeat == now.heartbeat;
}

}  // namespace

Status Session::OpenOwnDevice() {
  Result<std::unique_ptr<rnic::Device>> device = open_device_();
  if (device.ok()) {
    device_ = std::move(device).value();
    without_device_since_.reset();
    return {};
  }
  if (!without_device_since_.has_value()) without_device_since_ = Clock::now();
  return device.status();
}

bool Session::IsMute() const {
  return without_device_since_.has_value() &&
         Clock::now() - *without_device_since_ >= options_.ack_timeout;
}

Status Session::CheckMembers() const {
  if (device_ == nullptr || !device_->alive()) return Unavailable("the RNIC daemon is gone");
  if (heartbeat_ != nullptr && heartbeat_->lost())
    return Unavailable(Text("the queue for heartbeats of ", heartbeat_->lost_name(),
                            " failed: the replica is gone, or the way to it"));
  return {};
}

Status Session::CheckForChange() const {
  if (ending_ || absent_watch_ == nullptr) return {};
  if (absent_watch_->any_ready()) return Unavailable("a replica can be taken in, or given up");
  if (!absent_watch_->any_silent()) return {};
  std::string silent;
  for (const std::string& each : absent_watch_->Silent())
    silent += Text(silent.empty() ? "" : ", ", "replica ", each);
  return Unavailable(Text("no request was answered for heartbeat_timeout = ",
                          options_.heartbeat_timeout.count(), " ms by ", silent));
}

ReplicaHandle* Session::HandleAt(const std::string& address) const {
  for (const auto& replica : replicas_)
    if (replica->address() == address) return replica.get();
  return nullptr;
}

ReplicaHandle* Session::ReadyJoiner() {
  if (ending_ || unproven_ != nullptr || absent_watch_ == nullptr) return nullptr;
  if (absent_watch_->Leaver().has_value()) return nullptr;
  for (const std::string& address : absent_watch_->Ready())
    if (ReplicaHandle* const replica = HandleAt(address); replica != nullptr && !IsMember(*replica))
      return replica;
  const std::optional<Configuration::Replica> newcomer = absent_watch_->Newcomer();
  if (!newcomer.has_value()) return nullptr;
  if (ReplicaHandle* const known = HandleAt(newcomer->address))
    return IsMember(*known) ? nullptr : known;
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(newcomer->address);
  if (!endpoint.ok()) return nullptr;
  replicas_.push_back(std::make_unique<ReplicaHandle>(*endpoint, replicas_.front()->trust(),
                                                      options_.connect_timeout));
  return replicas_.back().get();
}

void Session::WatchAbsent() {
  if (absent_watch_ != nullptr)
    absent_watch_->Set(configuration_, info_.group, pool_->region().size());
}

bool Session::NoteLeaver() {
  const std::optional<std::string> leaver =
      ending_ || absent_watch_ == nullptr ? std::nullopt : absent_watch_->Leaver();
  if (!leaver.has_value()) {
    if (std::exchange(leaves_, false)) taken_back_.clear();  // nobody proposes it any more
    return false;
  }
  if (!taken_back_.empty()) return true;
  taken_back_ = *leaver;
  leaves_ = true;
  Say(LogLevel::kInfo, Text("replica ", *leaver, " is to leave the group"));
  return true;
}

bool Session::HasTakenBack(const Configuration& configuration) const {
  return std::ranges::any_of(configuration.absent, [&](const Configuration::Replica& each) {
    return each.address == taken_back_;
  });
}

bool Session::FewHold(size_t of) const { return bulk_ != nullptr && bulk_->FewCount(of); }

bool Session::TakesBack(const Configuration& next) const {
  if (!HasTakenBack(next)) return false;
  if (!leaves_) return true;
  return !ending_ && absent_watch_ != nullptr && absent_watch_->Leaver() == taken_back_ &&
         CheckLeaver(next, taken_back_).ok() && !FewHold(next.replicas.size());
}

void Session::NoteAddition(const ReplicaHandle* joiner) {
  if (joiner != nullptr) announced_ = IsMember(*joiner) ? "" : joiner->address();
  if (taken_back_.empty() || HasTakenBack(configuration_)) return;
  if (!configuration_.Has(taken_back_)) {
    absences_.erase(taken_back_);
    Say(LogLevel::kWarn,
        Text("replica ", taken_back_,
             leaves_
                 ? " was given up, as somebody proposed, and is not of the group any more"
                 : " could not be taken in, and is not of the group, as before it was proposed"));
  }
  taken_back_.clear();
  leaves_ = false;
  if (joiner == nullptr) announced_.clear();
}

// With the datapath fanout no replica exchanges operations with another one, and auto is fanout
// where their RNICs are apart. In a chain each may become the joiner's neighbour as others fail.
Status Session::TryWay(const control::Trust& trust, const Answered& joiner,
                       const std::vector<Answered>& members) {
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<rnic::Device> device, open_device_());
  HL_RETURN_IF_ERROR(TryOwnWay(*device, joiner)
                         .WithContext(Text("replica ", joiner.address,
                                           " cannot be reached by RDMA from the primary")));
  const bool forwards = options_.datapath.value_or(Datapath::kFanout) != Datapath::kFanout;
  const bool has_services = options_.provider == "softrnic";
  return TryWays(*device, has_services ? options_.host : "", trust, joiner,
                 forwards ? std::span<const Answered>(members) : std::span<const Answered>());
}

Status Session::TryOwnWay(rnic::Device& device, const Answered& joiner) {
  const auto& [address, hello] = joiner;
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, NodeView::Connect(device, hello.host));
  if (hello.installed_epoch == 0) return {};
  {
    const MutexLock lock(proofs_mutex_);
    const auto known = proofs_.find(address);
    if (known != proofs_.end() && IsUnwritten(known->second.seen, hello)) return {};
  }
  HL_ASSIGN_OR_RETURN(const HeldProof proof, ReadHeld(*view));
  const MutexLock lock(proofs_mutex_);
  proofs_[address] = {hello, proof};
  return {};
}

Status Session::BecomeFenced(const std::string& why) {
  if (heartbeat_ != nullptr) heartbeat_->SetTargets({});
  const MutexLock lock(fence_mutex_);
  if (!fenced_.exchange(true)) {
    fence_ = Fenced(why);
    if (absent_watch_ != nullptr) absent_watch_->End();
    if (bulk_ != nullptr) {
      bulk_->Interrupt();
      bulk_->SetTargets(std::vector<BulkLane::Target>(bulk_->size()), configuration_.All().size());
    }
    Say(LogLevel::kError, Text("fenced: ", why, "; this process will not write again"));
  }
  return fence_;
}

void Session::NoteOutOfReach(const Status& cause, bool planned) {
  if (out_of_reach_.exchange(true)) return;
  tried_ = false;
  lost_to_ = cause.message();
  const auto now = Clock::now();
  NoteSilence(heartbeat_ == nullptr
                  ? now
                  : std::max(heartbeat_->all_heard(), now - failure_times_.silence));
  if (planned) return;
  Say(LogLevel::kWarn, Text("the group stopped answering, which it did until ", lost_time_, ": ",
                            lost_to_, "; reconnecting; ", Outlook()));
}

void Session::NoteSilence(Clock::time_point since) {
  const auto ago = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since);
  lost_since_ = since;
  lost_time_ = HeartbeatTime(NextHeartbeat(0) - static_cast<uint64_t>(ago.count()));
}

std::string Session::Outlook() const {
  const std::string fails =
      Text("writes fail after ack_timeout = ", options_.ack_timeout.count(), " ms");
  if (!Rules().may_leave_out) return fails;
  return Text("a replica that does not answer for ", failure_times_.absence.count(),
              " ms is left out if enough others are there, and ", fails, " otherwise");
}

void Session::NoteBack(ReplicaHandle* joiner) {
  out_of_reach_ = false;
  recoveries_.fetch_add(1, std::memory_order_relaxed);
  for (const auto& replica : replicas_) {
    replica->ClearSuspicion();
    replica->SetSlowTimeout(SlowTimeout(pool_->region().size()));
  }
  NoteAddition(joiner);
  WatchAbsent();
  unproven_ = joiner != nullptr && IsMember(*joiner) ? joiner : nullptr;
  Say(LogLevel::kInfo, Text("the group is back under epoch ", own_.epoch, " with ", members_.size(),
                            " of ", configuration_.All().size(), " replicas"));
}

void Session::NoteNotTakenIn(ReplicaHandle& joiner, const Status& why, bool own_fault) {
  absent_watch_->Failed(joiner.address());
  // A way that breaks beside the joiner fails at an old member, too. The members worked without the
  // joiner, so another one is blamed only if it fails without it as well.
  for (const auto& replica : replicas_) replica->ClearSuspicion();
  if (IsMember(joiner) && !own_fault) unproven_ = &joiner;
  if (joiner.address() == announced_ && !own_fault) {
    taken_back_ = announced_;
    leaves_ = false;
  }
  const bool refused = why.code() == Code::kInvalidArgument;  // its message has the way out
  Say(LogLevel::kWarn,
      Text(joiner.name(), " could not be taken in: ", why.message(),
           taken_back_ == joiner.address()
               ? "; its addition is taken back; hyperloopctl add proposes it again"
           : refused ? ""
                     : "; it is tried again after a pause, and an open waits longer for it"));
  lost_to_ = why.message();
  NoteSilence(Clock::now());
}

Result<Recovered> Session::BringBack(const Status& cause, uint64_t acked,
                                     std::chrono::nanoseconds patience) {
  const auto allowed = std::chrono::duration_cast<Clock::duration>(patience);
  auto deadline = Clock::now() + allowed;
  // A failure of this node's own RNIC daemon is not the fault of a replica.
  if (device_ != nullptr && !device_->alive()) unproven_ = nullptr;
  if (cause.code() == Code::kTimedOut) NoteCutWay(acked);
  ReplicaHandle* joiner = ReadyJoiner();
  bool interrupted = false;  // for a joiner that failed: the members worked, and must work again
  bool repeated = false;
  NoteOutOfReach(cause, /*planned=*/NoteLeaver() || joiner != nullptr);
  if (joiner != nullptr) {
    Say(LogLevel::kInfo,
        Text(joiner->name(), IsOfGroup(*joiner) ? " is there; taking it in"
                                                : " is proposed; adding it to the group"));
  }
  while (true) {
    Result<Recovered> recovered = Unavailable("the store is being closed");
    if (!closing_ || interrupted) recovered = TryBringBack(acked, deadline - Clock::now(), joiner);
    if (recovered.ok() && joiner == nullptr && TakesBack(configuration_) &&
        !std::exchange(repeated, true)) {
      for (const auto& replica : replicas_) replica->ClearSuspicion();
      unproven_ = nullptr;
      NoteSilence(Clock::now());
      deadline = lost_since_ + allowed;
      continue;  // the members work; once more, to take the addition back
    }
    if (recovered.ok()) {
      NoteBack(joiner);
      return recovered;
    }
    const bool own_fault = device_ != nullptr && !device_->alive();
    DropGroup();
    own_.epoch = configuration_.epoch;
    members_ = HandlesOf(configuration_.replicas);
    const Status& why = recovered.status();
    interrupted = joiner != nullptr;
    // Whatever failed, the members do not wait for a joiner twice.
    if (interrupted) {
      NoteNotTakenIn(*joiner, why, own_fault);
      const bool in_bulk_lane = bulk_ != nullptr && bulk_->size() == replicas_.size();
      if (joiner == replicas_.back().get() && !IsOfGroup(*joiner) && !IsOfOptions(*joiner) &&
          !in_bulk_lane)
        replicas_.pop_back();
      joiner = nullptr;
      deadline = std::max(deadline, lost_since_ + allowed);
      continue;
    }
    // Any other error may pass, such as a socket that does not exist yet or a rival's request in
    // between.
    if (why.code() == Code::kFenced || why.code() == Code::kCorruption) return why;
    if (closing_ || Clock::now() >= deadline) {
      return Unavailable(Text("the group is out of reach since ", lost_time_, ": ", why.message(),
                              "; it stopped answering with: ", lost_to_,
                              "; writes fail after ack_timeout = ", options_.ack_timeout.count(),
                              " ms; it comes back ", kWhenAllRun));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

// If it is soon to be decided whether a member is left out, it has until then to answer.
std::chrono::nanoseconds Session::MostHello() const {
  const std::chrono::nanoseconds left = lost_since_ + failure_times_.absence - Clock::now();
  return Rules().may_leave_out && left < kMostHello
             ? std::max<std::chrono::nanoseconds>(left, failure_times_.answer)
             : failure_times_.answer;
}

// The members' answers are compared with earlier ones, old enough for a living owner's heartbeat to
// have moved since. Once members may be left out, one that answers, but failed in an attempt to
// bring the group back, counts as missing.
Judgement Session::LookAtStanding(std::chrono::nanoseconds patience) {
  std::vector<std::optional<control::HelloReplyT>> now;
  const auto most = std::clamp(patience, kLeastHello, MostHello());
  std::vector<Result<control::HelloReplyT>> answers =
      HelloAll(members_, {most, most, most, SIZE_MAX}, IsMute() ? nullptr : &own_.owner);
  for (size_t i = 0; i < members_.size(); ++i) {
    now.emplace_back();
    if (answers[i].ok()) {
      now.back() = std::move(answers[i]).value();
    } else {
      members_[i]->Disconnect();
    }
  }
  const bool watched = !looks_before_.empty() && Clock::now() - looked_ >= kWatchRival;
  const bool unproven = unproven_ != nullptr && IsMember(*unproven_);
  const bool waited_enough =
      unproven || OnlySilentFail(now) || Clock::now() - lost_since_ >= failure_times_.absence;
  FailureRules rules = Rules();
  // Whatever the options say, a replica that fails as soon as it was taken in may go again: the
  // group has worked without it.
  if (unproven) rules.may_leave_out = true;
  const size_t least = waited_enough ? LeastReplicas(configuration_, rules) : SIZE_MAX;
  std::vector<std::optional<control::HelloReplyT>> sound = now;
  size_t sound_count = 0;
  for (size_t i = 0; i < now.size(); ++i) {
    if (sound[i].has_value() && Suspect(*members_[i], *sound[i])) sound[i].reset();
    if (sound[i].has_value()) ++sound_count;
  }
  const std::vector<std::string> put_back = WhyPutBack(now);
  Judgement judgement = JudgeStanding(configuration_, watched ? looks_before_ : decltype(now){},
                                      sound_count >= least ? sound : now, least, put_back);
  const bool only_unproven =
      judgement.missing.size() == 1 && members_[judgement.missing.front()] == unproven_;
  if (judgement.standing == Standing::kShrink && !Rules().may_leave_out && !only_unproven)
    judgement = JudgeStanding(configuration_, watched ? looks_before_ : decltype(now){}, now,
                              SIZE_MAX, put_back);
  for (size_t i = 0; i < judgement.missing.size(); ++i) {
    const size_t member = judgement.missing[i];
    if (!sound[member].has_value() && now[member].has_value())
      judgement.reasons[i] = Text(members_[member]->name(),
                                  " answers requests, but its RNIC, or the way to it, failed");
  }
  if (looks_before_.empty() || watched) {
    looks_before_ = std::move(now);
    looked_ = Clock::now();
  }
  return judgement;
}

// Each replica is sealed only if it is still in the state in which it has just answered. So nobody
// else can have served meanwhile, and everything that the group acknowledged is in the own region.
Status Session::SealAnew(uint64_t epoch) {
  own_.epoch = epoch;
  return AllAtOnce(members_.size(), [this](size_t i) -> Status {
    const Result<control::HelloReplyT> hello = members_[i]->Hello();
    HL_RETURN_IF_ERROR(Retryable(hello.status()));
    if (ServedByAnother(*hello, configuration_)) return Unavailable("another primary serves");
    if (WentBack(*hello, configuration_)) HL_RETURN_IF_ERROR(JudgePutBack(*members_[i], *hello));
    return Retryable(Seal(*members_[i], *hello, info_.group).status());
  });
}

Status Session::AskToReconnect() {
  return AllAtOnce(members_.size(), [this](size_t i) {
    // A refusal means that the replica's state has just changed. The caller looks again.
    return Retryable(members_[i]
                         ->Call<control::DoneT>(OwnerRequest<control::ReconnectRequestT>(own_),
                                                members_[i]->slow_timeout())
                         .status());
  });
}

// The own region holds everything that was ever sent, because every record was written here first.
// If its memory is damaged, it becomes equal to a member's region, as when a group is taken.
Status Session::RestoreOwn(uint64_t acked, std::span<ReplicaHandle* const> sources) {
  const Status own = RedoOwn(acked, sources, sources.size());
  if (own.code() != Code::kCorruption) return own;
  Say(LogLevel::kError, Text("this node's own region is damaged: ", own.message(),
                             "; it becomes what the sound members hold"));
  HL_ASSIGN_OR_RETURN(const std::vector<MemberContent> content, ExamineAll());
  HL_ASSIGN_OR_RETURN(const Choice choice, ChooseMember(content, false));
  HL_RETURN_IF_ERROR(PullRegion(*members_[choice.index], own_, pool_->region()));
  const SourceOrder order = SourcesFor(choice, content);
  std::vector<ReplicaHandle*> ordered;
  for (const size_t i : order.indices) ordered.push_back(members_[i]);
  return RedoOwn(std::max(acked, choice.known_acked), ordered, order.equal);
}

bool Session::OnlySilentFail(std::span<const std::optional<control::HelloReplyT>> now) const {
  if (absent_watch_ == nullptr || !absent_watch_->any_silent()) return false;
  const std::vector<std::string> silent = absent_watch_->Silent();
  for (size_t i = 0; i < now.size(); ++i) {
    const bool there = now[i].has_value() && !Suspect(*members_[i], *now[i]);
    if (!there && std::ranges::count(silent, members_[i]->address()) == 0) return false;
  }
  return true;
}

// What a member says of a rival counts, whatever else it fails at.
bool Session::Suspect(const ReplicaHandle& member, const control::HelloReplyT& hello) const {
  if (!IsOwner(hello, configuration_.owner)) return false;
  return member.suspect() || unproven_ == &member;
}

void Session::LeaveOut(const Judgement& judgement, Configuration* next) {
  for (size_t i = 0; i < judgement.missing.size(); ++i) {
    const Configuration::Replica& leaves = next->replicas[judgement.missing[i]];
    absences_[leaves.address] = Text("since ", lost_time_, ": ", judgement.reasons[i]);
  }
  hyperloop::LeaveOut(judgement, next);
  members_ = HandlesOf(next->replicas);
}

bool Session::IsOfOptions(const ReplicaHandle& replica) const {
  return std::ranges::count(options_.replicas, replica.address()) != 0;
}

bool Session::IsOfGroup(const ReplicaHandle& replica) const {
  return configuration_.Has(replica.address());
}

void Session::Reword(const std::string& why, std::string* absence) {
  const std::string since = absence->empty() ? Text("since ", HeartbeatTime(NextHeartbeat(0)))
                                             : absence->substr(0, absence->find(": "));
  *absence = Text(since, ": ", why);
}

Status Session::JudgeHeld(const ReplicaHandle& joiner, const control::HelloReplyT& hello) {
  if (hello.installed_epoch == 0) return {};
  HeldProof proof;
  {
    const MutexLock lock(proofs_mutex_);
    const auto known = proofs_.find(joiner.address());
    if (known == proofs_.end() || !IsUnwritten(known->second.seen, hello))
      return Unavailable("it may have been written to since its journal was read");
    proof = known->second.proof;
  }
  const bool rival = IsOfRival(hello, configuration_, known_owners_);
  const Status judged = CheckReplaceable(joiner.name(), proof, pool_->region(), info_,
                                         rival ? HeldBy::kRival : HeldBy::kMember);
  if (judged.code() != Code::kInvalidArgument) return Retryable(judged);
  absent_watch_->Refuse(joiner.address(), judged);
  Reword(judged.message(), &absences_[joiner.address()]);
  tells_absences_ = true;
  return judged;
}

Status Session::JudgePutBack(const ReplicaHandle& member, const control::HelloReplyT& hello) {
  Result<std::unique_ptr<NodeView>> view = NodeView::Connect(*device_, hello.host);
  HL_RETURN_IF_ERROR(Retryable(view.status()));
  const Result<HeldProof> held = ReadHeld(**view);
  HL_RETURN_IF_ERROR(Retryable(held.status()));
  const bool rival = IsOfRival(hello, configuration_, known_owners_);
  const Status judged = CheckReplaceable(member.name(), *held, pool_->region(), info_,
                                         rival ? HeldBy::kRival : HeldBy::kMember);
  if (judged.code() != Code::kInvalidArgument) return Retryable(judged);
  const std::string why = Text("replica ", member.address(),
                               " went back to an older copy of its pool: ", judged.message());
  const MutexLock lock(proofs_mutex_);
  put_back_[member.address()] = {hello, why};
  return Unavailable(why);
}

std::vector<std::string> Session::WhyPutBack(
    std::span<const std::optional<control::HelloReplyT>> now) {
  const MutexLock lock(proofs_mutex_);
  std::vector<std::string> out(now.size());
  for (size_t i = 0; i < now.size(); ++i) {
    const auto known = put_back_.find(members_[i]->address());
    if (known != put_back_.end() && now[i].has_value() && IsUnwritten(known->second.seen, *now[i]))
      out[i] = known->second.why;
  }
  return out;
}

Status Session::Announce(ReplicaHandle& newcomer, Configuration* next) {
  HL_ASSIGN_OR_RETURN(const control::HelloReplyT hello, newcomer.Hello(kMostHello));
  HL_RETURN_IF_ERROR(
      hyperloop::Announce(info_.group, pool_->region().size(), newcomer.address(), hello, next));
  HL_RETURN_IF_ERROR(JudgeHeld(newcomer, hello));
  absences_[newcomer.address()] = Text("since ", HeartbeatTime(NextHeartbeat(0)), ": it is new");
  return {};
}

// Raises `epoch` beyond what the joiner has sealed. AbsentWatch has seen that no rival holds it.
Status Session::TakeIn(ReplicaHandle& joiner, Configuration* next, uint64_t* epoch) {
  HL_ASSIGN_OR_RETURN(const control::HelloReplyT hello, joiner.Hello(kMostHello));
  if (std::ranges::count(next->absent, joiner.address(), &Configuration::Replica::address) == 0)
    return {};
  // The chain keeps the order of the options.
  std::vector<std::string> chain;
  for (const auto& handle : replicas_) chain.push_back(handle->address());
  HL_RETURN_IF_ERROR(hyperloop::TakeIn(configuration_, info_.group, pool_->region().size(),
                                       joiner.address(), hello, chain, next, epoch));
  HL_RETURN_IF_ERROR(JudgeHeld(joiner, hello));
  members_ = HandlesOf(next->replicas);
  joiner.SetSlowTimeout(options_.ack_timeout / 2 +
                        std::chrono::seconds(pool_->region().size() / kJoinerBytesPerSecond));
  if (LowerMedia(hello.media)) {
    Say(LogLevel::kWarn, Text(joiner.name(), " has media=", hello.media,
                              ", which promises less than the group did so far"));
  }
  return {};
}

Result<Recovered> Session::TryBringBack(uint64_t acked, std::chrono::nanoseconds patience,
                                        ReplicaHandle* joiner) {
  DropGroup();
  // What failed before is what the first attempt is to mend. Whoever answers has that attempt, even
  // if a busy machine begins it late.
  if (!tried_)
    for (const auto& replica : replicas_) replica->ClearSuspicion();
  const uint64_t size = pool_->region().size();
  const std::chrono::nanoseconds reading = SlowTimeout(size) - options_.ack_timeout;
  auto latest = Clock::now() + options_.ack_timeout + (1 + members_.size()) * reading;
  // One that hangs must not use up the time until it may be left out, nor, if the first attempt
  // begins later than that, much more.
  if (const auto until = lost_since_ + failure_times_.absence;
      Rules().may_leave_out && joiner == nullptr && (!tried_ || Clock::now() < until))
    latest = until;
  for (const auto& replica : replicas_) replica->SetSlowDeadline(latest, reading);
  const Judgement judgement = LookAtStanding(patience);
  if (judgement.standing == Standing::kFenced) return BecomeFenced(judgement.why);
  if (judgement.standing == Standing::kWait) return Unavailable(judgement.why);
  tried_ = true;
  if (judgement.standing == Standing::kReclaim && !judgement.why.empty()) {
    Say(LogLevel::kWarn, Text("another primary was promised this group, and gave up or is gone: ",
                              judgement.why, "; taking it back under epoch ", judgement.epoch));
  }
  Configuration next = configuration_;
  uint64_t epoch = judgement.epoch;
  if (judgement.standing == Standing::kShrink) LeaveOut(judgement, &next);
  const std::vector<ReplicaHandle*> sources = members_;
  if (joiner != nullptr) {
    HL_RETURN_IF_ERROR(IsOfGroup(*joiner) ? TakeIn(*joiner, &next, &epoch)
                                          : Announce(*joiner, &next));
  }
  // The second step of a change, as of an opening with remove_replica. Some members may have
  // recorded the replica as one that decides: the two sets differ by one, so that their majorities
  // meet.
  const bool takes_back =
      joiner == nullptr && judgement.standing != Standing::kShrink && TakesBack(next);
  if (takes_back)
    std::erase_if(next.absent, [&](const auto& each) { return each.address == taken_back_; });
  const bool anew =
      judgement.standing != Standing::kOwner || joiner != nullptr || takes_back || tells_absences_;
  const bool announces = joiner != nullptr && !IsMember(*joiner);
  HL_RETURN_IF_ERROR(OpenOwnDevice());
  HL_RETURN_IF_ERROR(anew ? SealAnew(epoch) : AskToReconnect());
  HL_RETURN_IF_ERROR(Retryable(AttachAll()));
  // What follows reads all that is in use, which takes a while. The heartbeat shows meanwhile that
  // this primary lives.
  if (heartbeat_ != nullptr) heartbeat_->SetTargets(HeartbeatTargets(true));
  HL_RETURN_IF_ERROR(RestoreOwn(acked, sources));
  HL_RETURN_IF_ERROR(Retryable(PushOwn()));
  // The first step of a change stays, even if this owner never serves by it.
  if (anew) HL_RETURN_IF_ERROR(Retryable(InstallAll(std::move(next), /*lasting=*/announces)));
  if (anew) tells_absences_ = false;
  if (judgement.standing == Standing::kShrink) {
    Say(LogLevel::kWarn,
        Text("going on with ", members_.size(), " of ", configuration_.All().size(),
             " replicas under epoch ", epoch, ": ", judgement.why));
  }
  HL_RETURN_IF_ERROR(Retryable(ArmGroup()));
  for (const auto& replica : replicas_) replica->Disconnect();
  AimBulkLane({});
  looks_before_.clear();
  return Recovered{group_.get(), log_state_, configuration_};
}

}  // namespace hyperloop
