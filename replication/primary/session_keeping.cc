// Session: drives the keeping of a group. The machine decides (membership/keeping.h); what it
// decides is carried out here, by what is in session_recover.cc. All of this runs under the lane's
// mutex.
#include <algorithm>
#include <thread>

#include "common/group_error.h"
#include "common/heartbeat_word.h"
#include "hyperloop/core/text.h"
#include "primary/asking.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRetryPause{50};
constexpr std::chrono::milliseconds kJoinerAnswer{1000};  // one that runs answers at once
// The lowest rate at which a joiner is expected to read its region, because writes wait for it.
constexpr uint64_t kJoinerBytesPerSecond = 1u << 30;

// A time of this process's clock, for people.
std::string TimeText(Clock::time_point time) {
  const auto ago = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - time);
  return HeartbeatTime(NextHeartbeat(0) - static_cast<uint64_t>(ago.count()));
}

}  // namespace

// Carries out the effects of one call that brings the group back.
class Session::KeepingDriver {
 public:
  // Every record up to `acked` is acknowledged.
  KeepingDriver(Session& session, uint64_t acked) : s_(session), acked_(acked) {}

  Result<Recovered> Run(const Status& cause, std::chrono::nanoseconds patience) {
    const bool begins = !s_.out_of_reach_.exchange(true);
    const bool known_to_leave = !machine().group().taken_back.empty();
    keeping::Event event = keeping::Lost{cause,       HeardLast(),   patience, s_.OwnRnicFailed(),
                                         s_.closing_, s_.OffersNow()};
    keeping::Effect effect = machine().Step(std::move(event), Clock::now());
    if (machine().outage() != nullptr) SayBegin(begins, known_to_leave);
    while (!keeping::EndsCall(effect)) {
      event = std::visit([this](const auto& each) { return CarryOut(each); }, effect);
      effect = machine().Step(std::move(event), Clock::now());
    }
    return std::visit([this](const auto& each) { return Finish(each); }, effect);
  }

 private:
  using Event = keeping::Event;

  keeping::Keeping& machine() { return *s_.keeping_; }
  const keeping::Plan& plan() { return *machine().plan(); }
  const keeping::Outage& outage() { return *machine().outage(); }

  Clock::time_point HeardLast() const {
    const auto now = Clock::now();
    if (s_.heartbeat_ == nullptr) return now;
    return std::max(s_.heartbeat_->all_heard(), now - s_.failure_times_.silence);
  }

  // `begins`: the outage does. `known_to_leave`: it was said already which replica is to leave.
  void SayBegin(bool begins, bool known_to_leave) {
    const keeping::Group& group = outage().group;
    if (group.leaves && !known_to_leave)
      s_.Say(LogLevel::kInfo, Text("replica ", group.taken_back, " is to leave the group"));
    if (begins && !outage().planned)
      s_.Say(LogLevel::kWarn,
             Text("the group stopped answering, which it did until ", TimeText(outage().since),
                  ": ", outage().cause, "; reconnecting; ", Outlook()));
    if (outage().joiner.empty()) return;
    s_.Say(LogLevel::kInfo,
           Text("replica ", outage().joiner,
                group.configuration.Has(outage().joiner) ? " is there; taking it in"
                                                         : " is proposed; adding it to the group"));
  }
  // What follows if the group stays away.
  std::string Outlook() const {
    const std::string fails =
        Text("writes fail after ack_timeout = ", s_.options_.ack_timeout.count(), " ms");
    if (!s_.Rules().may_leave_out) return fails;
    return Text("a replica that does not answer for ", s_.failure_times_.absence.count(),
                " ms is left out if enough others are there, and ", fails, " otherwise");
  }

  Event CarryOut(const keeping::Ask& effect) {
    s_.DropGroup();
    const std::chrono::nanoseconds reading =
        s_.SlowTimeout(s_.pool_->region().size()) - s_.options_.ack_timeout;
    const auto latest = effect.until.value_or(Clock::now() + s_.options_.ack_timeout +
                                              (1 + s_.members_.size()) * reading);
    for (const auto& replica : s_.replicas_) {
      if (effect.forgives) replica->ClearSuspicion();
      replica->SetSlowDeadline(latest, reading);
    }
    std::vector<Result<control::HelloReplyT>> answers =
        HelloAll(s_.members_, {effect.most, effect.most, effect.most, SIZE_MAX},
                 s_.IsMute() ? nullptr : &s_.own_.owner);
    keeping::Asked event;
    for (size_t i = 0; i < s_.members_.size(); ++i) {
      ReplicaHandle& member = *s_.members_[i];
      keeping::Asked::Member& answer = event.members.emplace_back();
      answer.failed = member.suspect();
      if (!answers[i].ok()) {
        member.Disconnect();
        continue;
      }
      answer.why = s_.WhyPutBack(member, *answers[i]);
      answer.hello = std::move(answers[i]).value();
    }
    event.offers = s_.OffersNow();
    return event;
  }

  ReplicaHandle& HandleOf(const std::string& address) {
    if (ReplicaHandle* const known = s_.HandleAt(address)) return *known;
    const Result<control::Endpoint> endpoint = control::ParseEndpoint(address);
    return *s_.replicas_.emplace_back(std::make_unique<ReplicaHandle>(
        *endpoint, s_.replicas_.front()->trust(), s_.options_.connect_timeout));
  }
  Event CarryOut(const keeping::AskJoiner& effect) {
    keeping::JoinerAsked event{HandleOf(effect.address).Hello(kJoinerAnswer)};
    for (const auto& replica : s_.replicas_) event.chain.push_back(replica->address());
    return event;
  }
  Event CarryOut(const keeping::JudgeJoiner& effect) {
    ReplicaHandle& joiner = HandleOf(effect.address);
    const Status judged = s_.JudgeHeld(joiner, effect.hello);
    if (!judged.ok()) return keeping::Done<keeping::JudgeJoiner>{judged};
    if (plan().announces) {
      s_.absences_[effect.address] = Text("since ", TimeText(Clock::now()), ": it is new");
      return keeping::Done<keeping::JudgeJoiner>{};
    }
    joiner.SetSlowTimeout(s_.options_.ack_timeout / 2 +
                          std::chrono::seconds(s_.pool_->region().size() / kJoinerBytesPerSecond));
    if (s_.LowerMedia(effect.hello.media)) {
      s_.Say(LogLevel::kWarn, Text(joiner.name(), " has media=", effect.hello.media,
                                   ", which promises less than the group did so far"));
    }
    return keeping::Done<keeping::JudgeJoiner>{};
  }

  // The members are those of the next configuration from now on.
  Status Prepare() {
    const Judgement& judgement = plan().judgement;
    for (size_t i = 0; i < judgement.missing.size(); ++i) {
      const Configuration::Replica& leaves = s_.configuration_.replicas[judgement.missing[i]];
      s_.absences_[leaves.address] =
          Text("since ", TimeText(outage().since), ": ", judgement.reasons[i]);
    }
    s_.members_ = s_.HandlesOf(plan().next.replicas);
    return s_.OpenOwnDevice();
  }
  Event CarryOut(const keeping::Seal& effect) {
    const Judgement& judgement = plan().judgement;
    if (judgement.standing == Standing::kReclaim && !judgement.why.empty()) {
      s_.Say(LogLevel::kWarn,
             Text("another primary was promised this group, and gave up or is gone: ",
                  judgement.why, "; taking it back under epoch ", effect.epoch));
    }
    Status status = Prepare();
    if (status.ok()) status = s_.SealAnew(effect.epoch);
    return keeping::Done<keeping::Seal>{std::move(status)};
  }
  Event CarryOut(const keeping::Reconnect&) {
    Status status = Prepare();
    if (status.ok()) status = s_.AskToReconnect();
    return keeping::Done<keeping::Reconnect>{std::move(status)};
  }
  // What follows reads all that is in use, which takes a while. The heartbeat shows meanwhile that
  // this primary lives.
  Event CarryOut(const keeping::Attach&) {
    const Status status = Retryable(s_.AttachAll());
    if (status.ok() && s_.heartbeat_ != nullptr)
      s_.heartbeat_->SetTargets(s_.HeartbeatTargets(true));
    return keeping::Done<keeping::Attach>{status};
  }
  Event CarryOut(const keeping::Equalise&) {
    // Members that may give sound bytes for damaged ones: those that stay. What is left out is not
    // attached, and a joiner is not equal yet.
    std::vector<ReplicaHandle*> sources = s_.HandlesOf(s_.configuration_.replicas);
    std::erase_if(sources, [&](ReplicaHandle* each) { return !s_.IsMember(*each); });
    Status status = s_.RestoreOwn(acked_, sources);
    if (status.ok()) status = Retryable(s_.PushOwn());
    return keeping::Done<keeping::Equalise>{std::move(status)};
  }
  Event CarryOut(const keeping::Install& effect) {
    const Status status = Retryable(s_.InstallAll(effect.configuration, effect.lasting));
    if (status.ok() && plan().judgement.standing == Standing::kShrink) {
      s_.Say(LogLevel::kWarn,
             Text("going on with ", s_.members_.size(), " of ", s_.configuration_.All().size(),
                  " replicas under epoch ", s_.own_.epoch, ": ", plan().judgement.why));
    }
    return keeping::Done<keeping::Install>{status};
  }
  Event CarryOut(const keeping::Arm&) {
    const Status status = Retryable(s_.ArmGroup());
    if (status.ok()) {
      for (const auto& replica : s_.replicas_) replica->Disconnect();
      s_.AimBulkLane({});
    }
    return keeping::Armed{status, s_.closing_, s_.OffersNow()};
  }

  Event CarryOut(const keeping::Withdraw&) {
    const bool own_fault = s_.OwnRnicFailed();
    s_.DropGroup();
    s_.own_.epoch = s_.configuration_.epoch;
    s_.members_ = s_.HandlesOf(s_.configuration_.replicas);
    return keeping::Withdrawn{own_fault, s_.closing_};
  }
  // A way that breaks beside the joiner fails at an old member, too. The members worked without the
  // joiner, so another one is blamed only if it fails without it as well.
  Event CarryOut(const keeping::PutOff& effect) {
    for (const auto& replica : s_.replicas_) replica->ClearSuspicion();
    s_.absent_watch_->Failed(effect.joiner);
    const bool refused = effect.why.code() == Code::kInvalidArgument;  // it says the way out
    s_.Say(
        LogLevel::kWarn,
        Text("replica ", effect.joiner, " could not be taken in: ", effect.why.message(),
             effect.taken_back ? "; its addition is taken back; hyperloopctl add proposes it again"
             : refused         ? ""
                       : "; it is tried again after a pause, and an open waits longer for it"));
    ForgetStranger(effect.joiner);
    return keeping::Done<keeping::PutOff>{};
  }
  // Forgets a proposed replica that nothing knows but its proposal.
  void ForgetStranger(const std::string& address) {
    const bool in_bulk_lane = s_.bulk_ != nullptr && s_.bulk_->size() == s_.replicas_.size();
    const bool known =
        s_.configuration_.Has(address) || std::ranges::count(s_.options_.replicas, address) != 0;
    if (!known && !in_bulk_lane && s_.replicas_.back()->address() == address)
      s_.replicas_.pop_back();
  }
  Event CarryOut(const keeping::Pause&) {
    std::this_thread::sleep_for(kRetryPause);
    return keeping::Paused{s_.closing_};
  }
  template <class Effect>
  Event CarryOut(const Effect&) {
    return keeping::Worked{};  // no call has such an effect, or it ends the call
  }

  Result<Recovered> Finish(const keeping::Resume& effect) {
    s_.out_of_reach_ = false;
    s_.recoveries_.fetch_add(1, std::memory_order_relaxed);
    for (const auto& replica : s_.replicas_) {
      replica->ClearSuspicion();
      replica->SetSlowTimeout(s_.SlowTimeout(s_.pool_->region().size()));
    }
    if (!effect.gone.empty()) {
      s_.absences_.erase(effect.gone);
      s_.Say(
          LogLevel::kWarn,
          Text("replica ", effect.gone,
               effect.left ? " was given up, as somebody proposed, and is not of the group any more"
                           : " could not be taken in, and is not of the group, as before it was "
                             "proposed"));
    }
    s_.WatchAbsent();
    s_.Say(LogLevel::kInfo,
           Text("the group is back under epoch ", s_.own_.epoch, " with ", s_.members_.size(),
                " of ", s_.configuration_.All().size(), " replicas"));
    return Recovered{s_.group_.get(), s_.log_state_, s_.configuration_};
  }
  Result<Recovered> Finish(const keeping::GiveUp& effect) {
    if (effect.lasts) return effect.why;
    return Unavailable(Text("the group is out of reach since ", TimeText(outage().since), ": ",
                            effect.why.message(), "; it stopped answering with: ", outage().cause,
                            "; writes fail after ack_timeout = ", s_.options_.ack_timeout.count(),
                            " ms; it comes back ", kWhenAllRun));
  }
  Result<Recovered> Finish(const keeping::Fence& effect) { return s_.BecomeFenced(effect.why); }
  template <class Effect>
  Result<Recovered> Finish(const Effect& effect) {
    return Internal(Text("a call ended with ", effect.kName));
  }

  Session& s_;
  const uint64_t acked_;
};

Result<Recovered> Session::BringBack(const Status& cause, uint64_t acked,
                                     std::chrono::nanoseconds patience) {
  if (cause.code() == Code::kTimedOut) NoteCutWay(acked);
  return KeepingDriver(*this, acked).Run(cause, patience);
}

}  // namespace hyperloop
