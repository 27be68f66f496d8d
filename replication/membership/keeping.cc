#include "membership/keeping.h"

#include <algorithm>

#include "hyperloop/core/invariant.h"
#include "hyperloop/core/text.h"

namespace hyperloop::keeping {
namespace {

// A living owner's heartbeat moves five times in this time.
constexpr std::chrono::milliseconds kWatchRival{500};
// A member that does not answer must not use up the others' time.
constexpr std::chrono::milliseconds kMostAnswer{1000};
constexpr std::chrono::milliseconds kLeastAnswer{200};

using Replicas = std::vector<Configuration::Replica>;
using Answers = std::vector<std::optional<control::HelloReplyT>>;

bool HasAddress(const Replicas& replicas, const std::string& address) {
  return std::ranges::count(replicas, address, &Configuration::Replica::address) != 0;
}
bool IsMember(const Group& group, const std::string& address) {
  return HasAddress(group.configuration.replicas, address);
}

// Replicas change one at a time, so that none suffers from another one's failure. Empty: none.
std::string JoinerOf(const Group& group, const Offers& offers) {
  if (!group.unproven.empty() || offers.leaver.has_value()) return "";
  for (const std::string& each : offers.ready)
    if (HasAddress(group.configuration.absent, each)) return each;
  const std::string newcomer = offers.newcomer.value_or("");
  return IsMember(group, newcomer) ? "" : newcomer;
}

// Whether a replica is to leave. What nobody proposes any more is forgotten.
bool NoteLeaver(const Offers& offers, Group* group) {
  if (!offers.leaver.has_value()) {
    if (std::exchange(group->leaves, false)) group->taken_back.clear();
    return false;
  }
  if (!group->taken_back.empty()) return true;
  group->taken_back = *offers.leaver;
  group->leaves = true;
  return true;
}

// Whether the group is to lose taken_back now. One that is to leave may only as long as somebody
// proposes it.
bool TakesBack(const Group& group, const Offers& offers) {
  if (!HasAddress(group.configuration.absent, group.taken_back)) return false;
  if (!group.leaves) return true;
  return offers.leaver == group.taken_back && !offers.few_hold &&
         CheckLeaver(group.configuration, group.taken_back).ok();
}

// Whether a majority of those that count stays, and at most one replica comes or goes for good.
// Only then no two sets of replicas serve.
bool IsSafeChange(const Configuration& own, const Configuration& next) {
  const Replicas all = own.All(), all_then = next.All();
  size_t stay = 0, come = 0, go = 0;
  for (const auto& each : own.replicas) stay += HasAddress(next.replicas, each.address) ? 1 : 0;
  for (const auto& each : next.replicas) come += HasAddress(own.replicas, each.address) ? 0 : 1;
  for (const auto& each : all_then) come += HasAddress(all, each.address) ? 0 : 1;
  for (const auto& each : all) go += HasAddress(all_then, each.address) ? 0 : 1;
  return stay >= MajorityOf(own.replicas.size()) && come + go <= 1;
}

struct Outcome {
  State state;
  Effect effect;
};

// What follows an event in a state, for each row of kTable: the function for the state and the
// event has all of its rows.
class Rules {
 public:
  Rules(const Terms& terms, Time now) : terms_(terms), now_(now) {}

  // --- the group serves

  Outcome operator()(Serving& state, Worked&) const {
    state.group.unproven.clear();
    return {std::move(state), End{}};
  }

  Outcome operator()(Serving& state, Lost& event) const {
    Outage outage{std::move(state.group)};
    outage.since = event.heard;
    outage.cause = event.cause.message();
    return BeginCall(std::move(outage), event, /*begins=*/true);
  }

  Outcome operator()(Serving&, Close&) const { return {Closing{}, Release{}}; }

  // --- it is regained

  Outcome operator()(Asking& state, Asked& event) const {
    Outage& outage = state.outage;
    Judgement judgement = Judge(&outage, event);
    if (judgement.standing == Standing::kFenced)
      return {Fenced{std::move(outage.group), judgement.why}, Fence{judgement.why}};
    if (judgement.standing == Standing::kWait)
      return Fail(std::move(outage), Unavailable(judgement.why));
    outage.tried = true;
    const Group& group = outage.group;
    const bool shrinks = judgement.standing == Standing::kShrink;
    Plan plan{std::move(judgement), group.configuration};
    plan.epoch = plan.judgement.epoch;
    if (shrinks) LeaveOut(plan.judgement, &plan.next);
    if (!outage.joiner.empty()) {
      AskJoiner ask{outage.joiner};
      return {Joining{std::move(outage), std::move(plan)}, std::move(ask)};
    }
    // The second step of a change, as of an opening with remove_replica. Some members may have
    // recorded the replica as one that decides: the two sets differ by one, so that their
    // majorities meet.
    const bool takes_back = !shrinks && TakesBack(group, event.offers);
    if (takes_back) {
      std::erase_if(plan.next.absent,
                    [&](const auto& each) { return each.address == group.taken_back; });
    }
    plan.anew = plan.judgement.standing != Standing::kOwner || takes_back || group.tells_absences;
    return BeginSealing(std::move(outage), std::move(plan));
  }

  // The watch has seen that no rival holds the joiner.
  Outcome operator()(Joining& state, JoinerAsked& event) const {
    Outage& outage = state.outage;
    Plan& plan = state.plan;
    if (!event.hello.ok()) return Fail(std::move(outage), event.hello.status());
    const Configuration& own = outage.group.configuration;
    plan.announces = !own.Has(outage.joiner);
    const Status joins =
        plan.announces
            ? Announce(terms_.group, terms_.region_size, outage.joiner, *event.hello, &plan.next)
            : TakeIn(own, terms_.group, terms_.region_size, outage.joiner, *event.hello,
                     event.chain, &plan.next, &plan.epoch);
    if (!joins.ok()) return Fail(std::move(outage), joins);
    JudgeJoiner judge{outage.joiner, std::move(event.hello).value()};
    return {std::move(state), std::move(judge)};
  }
  Outcome operator()(Joining& state, Done<JudgeJoiner>& event) const {
    if (event.status.code() == Code::kInvalidArgument) state.outage.group.tells_absences = true;
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    return BeginSealing(std::move(state.outage), std::move(state.plan));
  }

  Outcome operator()(Sealing& state, Done<Seal>& event) const {
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    return {std::move(state), Attach{}};
  }
  Outcome operator()(Sealing& state, Done<Reconnect>& event) const {
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    return {std::move(state), Attach{}};
  }
  Outcome operator()(Sealing& state, Done<Attach>& event) const {
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    return {Equalising{std::move(state.outage), std::move(state.plan)}, Equalise{}};
  }

  // The first step of a change stays, even if this owner never serves by it.
  Outcome operator()(Equalising& state, Done<Equalise>& event) const {
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    Arming arming{std::move(state.outage), std::move(state.plan)};
    if (!arming.plan.anew) return {std::move(arming), Arm{}};
    Install install{arming.plan.next, /*lasting=*/arming.plan.announces};
    return {std::move(arming), std::move(install)};
  }

  Outcome operator()(Arming& state, Done<Install>& event) const {
    if (!event.status.ok()) return Fail(std::move(state.outage), std::move(event.status));
    Outage& outage = state.outage;
    outage.group.configuration = state.plan.next;
    outage.group.tells_absences = false;
    outage.before.clear();
    return {std::move(state), Arm{}};
  }
  Outcome operator()(Arming& state, Armed& event) const {
    Outage& outage = state.outage;
    if (!event.status.ok()) return Fail(std::move(outage), std::move(event.status));
    outage.before.clear();
    const bool again = outage.joiner.empty() && !outage.repeated && !event.closing &&
                       TakesBack(outage.group, event.offers);
    if (!again) return Back(std::move(outage));
    outage.repeated = true;
    outage.group.unproven.clear();
    outage.since = now_;
    outage.deadline = now_ + outage.patience;
    return AskMembers(std::move(outage), /*forgives=*/true);
  }

  // --- an attempt has failed

  // Whatever failed, the members do not wait for a joiner twice. They worked without it, and must
  // work again.
  Outcome operator()(Withdrawing& state, Withdrawn& event) const {
    Outage& outage = state.outage;
    if (!outage.joiner.empty()) return PutOffJoiner(std::move(outage), state.why, event.own_fault);
    const bool lasts = state.why.code() == Code::kFenced || state.why.code() == Code::kCorruption;
    if (lasts || event.closing || now_ >= outage.deadline)
      return {OutOfReach{std::move(outage)}, GiveUp{std::move(state.why), lasts}};
    return {Pausing{std::move(outage)}, Pause{}};
  }
  Outcome operator()(PuttingOff& state, Done<PutOff>&) const {
    return AskMembers(std::move(state.outage));
  }
  Outcome operator()(Pausing& state, Paused& event) const {
    if (event.closing) return {OutOfReach{std::move(state.outage)}, GiveUp{BeingClosed()}};
    return AskMembers(std::move(state.outage));
  }

  // --- it is out of reach, or not this primary's any more

  Outcome operator()(Fenced& state, Lost&) const {
    Fence fence{state.why};
    return {std::move(state), std::move(fence)};
  }
  Outcome operator()(Fenced&, Close&) const { return {Closed{}, End{}}; }
  Outcome operator()(Closing&, Done<Release>&) const { return {Closed{}, End{}}; }

  // The call before this one has failed, or ended without a word.
  template <class AnyState>
  requires requires(AnyState& state) { state.outage; }
  Outcome operator()(AnyState& state, Lost& event) const {
    return BeginCall(std::move(state.outage), event, /*begins=*/false);
  }
  template <class AnyState>
  requires requires(AnyState& state) { state.outage; }
  Outcome operator()(AnyState&, Close&) const { return {Closing{}, Release{}}; }

  template <class AnyState, class AnyEvent>
  Outcome operator()(AnyState& state, AnyEvent&) const {
    return {std::move(state),
            GiveUp{Internal(Text("in state ", AnyState::kName, " nobody asked for this")), true}};
  }

 private:
  static Status BeingClosed() { return Unavailable("the store is being closed"); }
  static Outcome Fail(Outage outage, Status why) {
    return {Withdrawing{std::move(outage), std::move(why)}, Withdraw{}};
  }

  // `begins`: the outage does.
  Outcome BeginCall(Outage outage, const Lost& event, bool begins) const {
    // A failure of this node's own RNIC daemon is not the fault of a replica.
    if (event.own_fault) outage.group.unproven.clear();
    outage.joiner = JoinerOf(outage.group, event.offers);
    const bool planned = NoteLeaver(event.offers, &outage.group) || !outage.joiner.empty();
    if (begins) outage.planned = planned;
    outage.patience = event.patience;
    outage.deadline = now_ + event.patience;
    outage.repeated = false;
    if (event.closing) return Fail(std::move(outage), BeingClosed());
    return AskMembers(std::move(outage));
  }

  // What failed before is what the first attempt is to mend. Whoever answers has that attempt, even
  // if a busy machine begins it late.
  Outcome AskMembers(Outage outage, bool forgives = false) const {
    Ask ask{.forgives = forgives || !outage.tried};
    const Time absent_from = outage.since + terms_.absence;
    Duration most = terms_.answer;
    if (terms_.rules.may_leave_out) {
      // If it is soon to be decided whether a member is left out, it has until then to answer.
      if (const Duration left = absent_from - now_; left < kMostAnswer) most = std::max(most, left);
      // One that hangs must not use up the time until it may be left out, nor, if the first attempt
      // begins later than that, much more.
      if (outage.joiner.empty() && (!outage.tried || now_ < absent_from)) ask.until = absent_from;
    }
    const Duration left = outage.deadline - now_;
    ask.most = std::min(most, std::max<Duration>(left, kLeastAnswer));
    return {Asking{std::move(outage)}, std::move(ask)};
  }

  // Whether only members that have been silent for heartbeat_timeout fail.
  static bool OnlySilentFail(const Configuration& own, const Answers& sound, const Offers& offers) {
    for (size_t i = 0; i < sound.size(); ++i)
      if (!sound[i].has_value() && std::ranges::count(offers.silent, own.replicas[i].address) == 0)
        return false;
    return !offers.silent.empty();
  }

  // The members' answers are compared with earlier ones, old enough for a living owner's heartbeat
  // to have moved since. Once members may be left out, one that answers, but failed in an attempt
  // to bring the group back, counts as missing.
  Judgement Judge(Outage* outage, const Asked& event) const {
    const Configuration& own = outage->group.configuration;
    const std::string& unproven = outage->group.unproven;
    HL_INVARIANT(event.members.size() == own.replicas.size());
    Answers now, sound;
    std::vector<std::string> refused;
    size_t there = 0;
    for (size_t i = 0; i < event.members.size(); ++i) {
      const Asked::Member& member = event.members[i];
      now.push_back(member.hello);
      sound.push_back(member.hello);
      refused.push_back(member.why);
      // What a member says of a rival counts, whatever else it fails at.
      const bool fails = member.failed || own.replicas[i].address == unproven;
      if (fails && member.hello.has_value() && IsOwner(*member.hello, own.owner))
        sound.back().reset();
      there += sound.back().has_value() ? 1 : 0;
    }
    const bool watched = !outage->before.empty() && now_ - outage->looked >= kWatchRival;
    const Answers before = watched ? outage->before : Answers();
    const bool may_be_unproven = IsMember(outage->group, unproven);
    const bool waited_enough = may_be_unproven || OnlySilentFail(own, sound, event.offers) ||
                               now_ - outage->since >= terms_.absence;
    FailureRules rules = terms_.rules;
    // Whatever the options say, a replica that fails as soon as it was taken in may go again: the
    // group has worked without it.
    if (may_be_unproven) rules.may_leave_out = true;
    const size_t least = waited_enough ? LeastReplicas(own, rules) : SIZE_MAX;
    Judgement judgement = JudgeStanding(own, before, there >= least ? sound : now, least, refused);
    const bool only_unproven = judgement.missing.size() == 1 &&
                               own.replicas[judgement.missing.front()].address == unproven;
    if (judgement.standing == Standing::kShrink && !terms_.rules.may_leave_out && !only_unproven)
      judgement = JudgeStanding(own, before, now, SIZE_MAX, refused);
    for (size_t i = 0; i < judgement.missing.size(); ++i) {
      const size_t member = judgement.missing[i];
      if (!sound[member].has_value() && now[member].has_value())
        judgement.reasons[i] = Text("replica ", own.replicas[member].address,
                                    " answers requests, but its RNIC, or the way to it, failed");
    }
    if (outage->before.empty() || watched) {
      outage->before = std::move(now);
      outage->looked = now_;
    }
    return judgement;
  }

  // Each member is sealed only if it is still in the state in which it has just answered. So nobody
  // else can have served meanwhile, and everything that the group acknowledged is in the own
  // region.
  Outcome BeginSealing(Outage outage, Plan plan) const {
    const Configuration& own = outage.group.configuration;
    HL_INVARIANT(IsSafeChange(own, plan.next));
    // Where nobody may be left out, a replica that was just taken in may: all worked without it.
    if (plan.judgement.standing == Standing::kShrink && !terms_.rules.may_leave_out) {
      HL_INVARIANT(plan.judgement.missing.size() == 1);
      HL_INVARIANT(own.replicas[plan.judgement.missing[0]].address == outage.group.unproven);
    }
    HL_INVARIANT(plan.anew || plan.next.absent == own.absent);
    if (!plan.anew) return {Sealing{std::move(outage), std::move(plan)}, Reconnect{}};
    HL_INVARIANT(plan.epoch > own.epoch);
    plan.next.epoch = plan.epoch;
    const uint64_t epoch = plan.epoch;
    return {Sealing{std::move(outage), std::move(plan)}, Seal{epoch}};
  }

  Outcome PutOffJoiner(Outage outage, const Status& why, bool own_fault) const {
    const std::string joiner = std::exchange(outage.joiner, "");
    Group& group = outage.group;
    // It was installed as one that counts, and failed after that.
    if (IsMember(group, joiner) && !own_fault) group.unproven = joiner;
    if (joiner == group.announced && !own_fault) {
      group.taken_back = joiner;
      group.leaves = false;
    }
    outage.cause = why.message();
    outage.since = now_;
    outage.deadline = std::max(outage.deadline, now_ + outage.patience);
    PutOff put_off{joiner, why, group.taken_back == joiner};
    return {PuttingOff{std::move(outage)}, std::move(put_off)};
  }

  static Outcome Back(Outage outage) {
    Group& group = outage.group;
    Resume resume{outage.joiner};
    const bool is_member = IsMember(group, outage.joiner);
    if (!outage.joiner.empty()) group.announced = is_member ? "" : outage.joiner;
    if (!group.taken_back.empty() && !HasAddress(group.configuration.absent, group.taken_back)) {
      resume.left = std::exchange(group.leaves, false);
      const std::string gone = std::exchange(group.taken_back, "");
      if (!group.configuration.Has(gone)) resume.gone = gone;
      if (outage.joiner.empty()) group.announced.clear();
    }
    group.unproven = is_member ? outage.joiner : "";
    return {Serving{std::move(group)}, std::move(resume)};
  }

  const Terms& terms_;
  const Time now_;
};

}  // namespace

Keeping::Keeping(Terms terms, Configuration configuration)
    : terms_(std::move(terms)), state_(Serving{{std::move(configuration)}}) {}

Effect Keeping::Step(Event event, Time now) {
  Outcome outcome = std::visit(Rules(terms_, now), state_, event);
  state_ = std::move(outcome.state);
  HL_INVARIANT(!EndsCall(outcome.effect) || outage() == nullptr ||
               std::holds_alternative<OutOfReach>(state_) ||
               std::get<GiveUp>(outcome.effect).why.code() == Code::kInternal);
  return std::move(outcome.effect);
}

const Outage* Keeping::outage() const {
  return std::visit(
      [](const auto& state) -> const Outage* {
        if constexpr (requires { state.outage; })
          return &state.outage;
        else
          return nullptr;
      },
      state_);
}

const Plan* Keeping::plan() const {
  return std::visit(
      [](const auto& state) -> const Plan* {
        if constexpr (requires { state.plan; })
          return &state.plan;
        else
          return nullptr;
      },
      state_);
}

const Group& Keeping::group() const {
  static const Group kNone;
  return std::visit(
      [](const auto& state) -> const Group& {
        if constexpr (requires { state.group; })
          return state.group;
        else if constexpr (requires { state.outage; })
          return state.outage.group;
        else
          return kNone;
      },
      state_);
}

std::string_view NameOf(const State& state) {
  return std::visit([](const auto& each) { return each.kName; }, state);
}
std::string_view NameOf(const Effect& effect) {
  return std::visit([](const auto& each) { return each.kName; }, effect);
}
bool EndsCall(const Effect& effect) {
  return std::holds_alternative<Resume>(effect) || std::holds_alternative<GiveUp>(effect) ||
         std::holds_alternative<Fence>(effect);
}

}  // namespace hyperloop::keeping
