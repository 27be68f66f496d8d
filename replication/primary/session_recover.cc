// Session: bringing back a group that stopped answering. All of this runs under the lane's mutex.
#include <algorithm>
#include <thread>

#include "common/group_error.h"
#include "common/text.h"
#include "primary/equalize.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryPause{50};
// A living owner's heartbeat moves five times in this time.
constexpr std::chrono::milliseconds kWatchRival{500};
// A replica that runs answers at once. One that does not must not use up the others' time.
constexpr std::chrono::milliseconds kLeastHello{200}, kMostHello{1000};

// Makes errors retryable that come from a member's answer. It may be garbled or out of date now,
// and right the next time.
Status Retryable(const Status& status) {
  const bool passes = status.code() == Code::kFenced || status.code() == Code::kCorruption;
  return passes ? Unavailable(status.message()) : status;
}

}  // namespace

Status Session::CheckMembers() const {
  if (device_ == nullptr || !device_->alive()) return Unavailable("the RNIC daemon is gone");
  if (heartbeat_ != nullptr && heartbeat_->lost())
    return Unavailable(
        "a replica's queue for heartbeats failed: the replica is gone, or the way to it");
  return {};
}

Status Session::BecomeFenced(const std::string& why) {
  const std::lock_guard lock(fence_mutex_);
  if (!fenced_.exchange(true)) {
    fence_ = Fenced(why);
    if (bulk_ != nullptr) bulk_->Interrupt();
    Say(LogLevel::kError, Text("fenced: ", why, "; this process will not write again"));
  }
  return fence_;
}

Result<Recovered> Session::BringBack(const Status& cause, uint64_t acked,
                                     std::chrono::nanoseconds patience) {
  const auto started = Clock::now();
  const auto deadline = started + std::chrono::duration_cast<Clock::duration>(patience);
  if (!std::exchange(out_of_reach_, true)) {
    lost_to_ = cause.message();
    Say(LogLevel::kWarn, Text("the group stopped answering: ", lost_to_, "; reconnecting"));
  }
  while (true) {
    Result<Recovered> recovered = TryBringBack(acked, deadline - Clock::now());
    if (recovered.ok()) {
      out_of_reach_ = false;
      Say(LogLevel::kInfo, Text("the group is back under epoch ", own_.epoch));
      return recovered;
    }
    DropGroup();
    own_.epoch = configuration_.epoch;
    const Status& why = recovered.status();
    // Any other error may pass, such as a socket that does not exist yet or a rival's request in
    // between.
    if (why.code() == Code::kFenced || why.code() == Code::kCorruption) return why;
    if (closing_ || Clock::now() >= deadline) {
      return Unavailable(Text("the group is out of reach: ", why.message(),
                              "; it stopped answering with: ", lost_to_, "; it comes back ",
                              kWhenAllRun));
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

// The members' answers are compared with earlier ones, old enough for a living owner's heartbeat to
// have moved since.
Judgement Session::LookAtStanding(std::chrono::nanoseconds patience) {
  std::vector<std::optional<control::HelloReplyT>> now;
  for (const auto& replica : replicas_) {
    Result<control::HelloReplyT> hello =
        replica->Hello(std::clamp<std::chrono::nanoseconds>(patience, kLeastHello, kMostHello));
    if (hello.ok()) {
      now.emplace_back(std::move(hello).value());
    } else {
      replica->Disconnect();
      now.emplace_back();
    }
  }
  const bool watched = !looks_before_.empty() && Clock::now() - looked_ >= kWatchRival;
  Judgement judgement =
      JudgeStanding(configuration_, watched ? looks_before_ : decltype(now){}, now);
  if (looks_before_.empty() || watched) {
    looks_before_ = std::move(now);
    looked_ = Clock::now();
  }
  return judgement;
}

// Each replica is sealed only if it is still in the state in which it has just answered. So nobody
// else can have been installed meanwhile, and everything that the group acknowledged is in the own
// region.
Status Session::SealAnew(uint64_t epoch) {
  own_.epoch = epoch;
  for (const auto& replica : replicas_) {
    HL_ASSIGN_OR_RETURN(const control::HelloReplyT hello, replica->Hello());
    // An epoch that this primary itself installed, in an attempt that was cut short, is no rival's.
    const bool mine = IsOwner(hello, configuration_.owner);
    if (hello.installed_epoch > configuration_.epoch && !mine)
      return Unavailable("another primary was installed");
    HL_RETURN_IF_ERROR(Retryable(Seal(*replica, hello, info_.group).status()));
  }
  return {};
}

// The requests also show the replicas that their owner lives, while it has no RNIC to do so.
Status Session::AskToReconnect() {
  for (const auto& replica : replicas_) {
    // A refusal means that the replica's state has just changed. The caller looks again.
    HL_RETURN_IF_ERROR(
        Retryable(replica
                      ->Call<control::DoneT>(OwnerRequest<control::ReconnectRequestT>(own_),
                                             replica->slow_timeout())
                      .status()));
  }
  return {};
}

// The own region holds everything that was ever sent, because every record was written here first.
// If its memory is damaged, it becomes equal to a member's region, as when a group is taken.
Status Session::RestoreOwn(uint64_t acked) {
  std::vector<ReplicaHandle*> members;
  for (const auto& replica : replicas_) members.push_back(replica.get());
  const Status own = RedoOwn(acked, members);
  if (own.code() != Code::kCorruption) return own;
  Say(LogLevel::kError, Text("this node's own region is damaged: ", own.message(),
                             "; it becomes what the sound members hold"));
  HL_ASSIGN_OR_RETURN(const std::vector<MemberContent> content, ExamineAll());
  HL_ASSIGN_OR_RETURN(const Choice choice, ChooseMember(content));
  HL_RETURN_IF_ERROR(PullRegion(*replicas_[choice.index], own_, pool_->region()));
  return RedoOwn(std::max(acked, choice.known_acked), members);
}

Result<Recovered> Session::TryBringBack(uint64_t acked, std::chrono::nanoseconds patience) {
  if (closing_) return Unavailable("the store is being closed");
  DropGroup();
  const Judgement judgement = LookAtStanding(patience);
  if (judgement.standing == Standing::kFenced) return BecomeFenced(judgement.why);
  if (judgement.standing == Standing::kWait) return Unavailable(judgement.why);
  const bool reclaim = judgement.standing == Standing::kReclaim;
  if (!reclaim) HL_RETURN_IF_ERROR(AskToReconnect());
  HL_ASSIGN_OR_RETURN(device_, open_device_());
  if (reclaim) {
    Say(LogLevel::kWarn,
        Text("another primary was promised this group, and gave up or is gone; taking it back "
             "under epoch ",
             judgement.epoch));
    HL_RETURN_IF_ERROR(SealAnew(judgement.epoch));
  }
  HL_RETURN_IF_ERROR(Retryable(AttachAll()));
  // What follows reads the whole region, which takes a while. The heartbeat shows meanwhile that
  // this primary lives.
  if (heartbeat_ != nullptr) heartbeat_->SetTargets(HeartbeatTargets());
  HL_RETURN_IF_ERROR(RestoreOwn(acked));
  HL_RETURN_IF_ERROR(Retryable(PushOwn()));
  if (reclaim) HL_RETURN_IF_ERROR(Retryable(InstallAll()));
  HL_RETURN_IF_ERROR(Retryable(ArmGroup()));
  for (const auto& replica : replicas_) replica->Disconnect();
  AimBulkLane();
  looks_before_.clear();
  return Recovered{group_.get(), log_state_, configuration_};
}

}  // namespace hyperloop
