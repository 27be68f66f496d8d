// Session: what bringing a group back is made of: looking, sealing, restoring, judging what
// replicas hold. What follows what, membership/keeping.h says. All of this runs under the lane's
// mutex, but for the ways to joiners, which are tried by a thread of the watch.
#include <algorithm>

#include "common/heartbeat_word.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"
#include "primary/asking.h"
#include "primary/equalize.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

// Whether no primary can have written to the replica between these two answers: whoever writes has
// its promise, and moves its heartbeat.
bool IsUnwritten(const control::HelloReplyT& before, const control::HelloReplyT& now) {
  return before.node_id == now.node_id && before.sealed_epoch == now.sealed_epoch &&
         before.installed_epoch == now.installed_epoch && before.heartbeat == now.heartbeat;
}

}  // namespace

// It may be garbled or out of date now, and right the next time.
Status Session::Retryable(const Status& status) {
  const bool passes = status.code() == Code::kFenced || status.code() == Code::kCorruption;
  return passes ? Unavailable(status.message()) : status;
}

bool Session::OwnRnicFailed() const { return device_ != nullptr && !device_->alive(); }

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
  for (const std::string& each : absent_watch_->Offered().silent)
    silent += Text(silent.empty() ? "" : ", ", "replica ", each);
  return Unavailable(Text("no request was answered for heartbeat_timeout = ",
                          options_.heartbeat_timeout.count(), " ms by ", silent));
}

ReplicaHandle* Session::HandleAt(const std::string& address) const {
  for (const auto& replica : replicas_)
    if (replica->address() == address) return replica.get();
  return nullptr;
}

keeping::Offers Session::OffersNow() const {
  if (absent_watch_ == nullptr) return {};
  keeping::Offers offers = absent_watch_->Offered();
  offers.few_hold = FewHold(configuration_.replicas.size());
  // An absent replica is reached by the handle that the session has; a proposed one gets its own.
  std::erase_if(offers.ready, [&](const auto& each) { return HandleAt(each) == nullptr; });
  if (offers.newcomer.has_value() && HandleAt(*offers.newcomer) == nullptr &&
      !control::ParseEndpoint(*offers.newcomer).ok()) {
    offers.newcomer.reset();
  }
  if (!ending_) return offers;
  offers.ready.clear();
  offers.newcomer.reset();
  offers.leaver.reset();
  return offers;
}

void Session::WatchAbsent() {
  if (absent_watch_ != nullptr)
    absent_watch_->Set(configuration_, info_.group, pool_->region().size());
}

bool Session::FewHold(size_t of) const { return bulk_ != nullptr && bulk_->FewCount(of); }

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

std::string Session::WhyPutBack(const ReplicaHandle& member, const control::HelloReplyT& now) {
  const MutexLock lock(proofs_mutex_);
  const auto known = put_back_.find(member.address());
  const bool still = known != put_back_.end() && IsUnwritten(known->second.seen, now);
  return still ? known->second.why : "";
}

}  // namespace hyperloop
