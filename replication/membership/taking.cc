#include "membership/taking.h"

#include <algorithm>

#include "control/owner.h"
#include "hyperloop/core/invariant.h"
#include "hyperloop/core/text.h"
#include "membership/strangers.h"

namespace hyperloop::taking {
namespace {

Status HeldBy(const MemberLook& living) {
  return Busy(Text("the group is held by a living primary: ", living.hello.sealed_owner_name,
                   " (epoch ", living.hello.sealed_epoch, " at ", living.name,
                   "); stop it first, or give takeover=true to fence it"));
}

Status MovedBy(const MemberLook& moved) {
  return TakenMeanwhile(Text(moved.name, " is at epoch ", moved.hello.sealed_epoch, " now"));
}

uint64_t GreatestAcked(const std::vector<MemberContent>& members) {
  uint64_t acked = 0;
  for (const MemberContent& each : members) acked = std::max(acked, each.content.acked_seq);
  return acked;
}

struct Outcome {
  State state;
  Effect effect;
};

Outcome Refuse(Status why) { return {Refused{std::move(why)}, End{}}; }
// `never_served`: as Release's.
Outcome GiveBack(Status why, bool never_served = true) {
  return {GivingBack{std::move(why)}, Release{never_served}};
}

// What follows an event in a state, for each row of kTable: the function for the state and the
// event has all of its rows.
class Rules {
 public:
  Rules(const Wish& wish, const Random& random) : wish_(wish), random_(random) {}

  // --- nothing is changed yet

  Outcome operator()(Closed&, Begin&) const { return {Looking{}, AskAll{}}; }

  Outcome operator()(Looking&, Looked& event) const {
    if (!event.looks.ok()) return Refuse(event.looks.status());
    Draft draft{std::move(event.looks).value(), std::move(event.missing), {}};
    if (wish_.rules.bears_missing()) LeaveOutUnfit(&draft.looks, &draft.missing);
    return Plan(std::move(draft));
  }

  Outcome operator()(Judging& state, Watched& event) const {
    if (!event.looks.ok()) return Refuse(event.looks.status());
    if (const MemberLook* living = LivingOwner(state.draft.looks, *event.looks))
      return Refuse(HeldBy(*living));
    if (event.enough) return {std::move(state), Judge{}};
    return {std::move(state), Watch{}};
  }

  Outcome operator()(Judging& state, Judged& event) const {
    Draft& draft = state.draft;
    if (event.status.ok()) {
      draft.stands_in_for = event.stands_in_for;
      const uint64_t epoch = draft.plan.epoch;
      return {Opening{std::move(draft), epoch}, OpenPool{event.stands_in_for.has_value()}};
    }
    // Nodes and log that contradict each other are not damaged if another primary moved them
    // meanwhile: then some of it was read before that, and some after.
    if (event.status.code() == Code::kCorruption)
      return {Doubting{std::move(draft.looks), std::move(event.status)}, Ask{}};
    if (!event.refused.has_value() || !wish_.rules.bears_missing())
      return Refuse(std::move(event.status));
    return Plan(Without(std::move(draft), *event.refused, event.status));
  }

  // Whether another primary moved the members cannot be known while one does not answer.
  Outcome operator()(Doubting& state, Asked& event) const {
    if (!event.looks.ok()) return Refuse(event.looks.status());
    if (const MemberLook* const moved = MovedMember(state.looks, *event.looks))
      return Refuse(MovedBy(*moved));
    return Refuse(std::move(state.damage));
  }

  Outcome operator()(Opening& state, Opened& event) const {
    if (!event.status.ok()) return Refuse(std::move(event.status));
    if (state.draft.stands_in_for.has_value())
      state.epoch = std::max(state.epoch, event.last_epoch + 1);
    if (wish_.takeover) return BeginSealing(std::move(state));
    return {std::move(state), Ask{}};
  }

  // Judging took a while. An owner that was silent may have come back in that time.
  Outcome operator()(Opening& state, Asked& event) const {
    if (!event.looks.ok()) return Refuse(event.looks.status());
    if (const MemberLook* living = LivingOwner(state.draft.looks, *event.looks))
      return Refuse(HeldBy(*living));
    return BeginSealing(std::move(state));
  }

  // --- from here on members have promised something

  Outcome operator()(Sealing& state, Sealed& event) const {
    if (!event.content.ok()) return GiveBack(event.content.status());
    state.content = std::move(event.content).value();
    for (const size_t i : state.draft.plan.joiners) state.content[i].joins = true;
    return {std::move(state), Attach{}};
  }

  Outcome operator()(Sealing& state, Done<Attach>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    Result<Equalise> equalise = WhatTheGroupBecomes(state.draft, state.content);
    if (!equalise.ok()) return GiveBack(equalise.status());
    return {Equalising{std::move(state.draft), std::move(state.next)}, std::move(equalise).value()};
  }

  Outcome operator()(Equalising& state, Done<Equalise>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    const std::optional<Configuration>& before = state.draft.plan.before_change;
    if (before.has_value()) {
      Install install{*before, /*lasting=*/true};
      return {Changing{std::move(state.draft), std::move(state.next)}, std::move(install)};
    }
    return BeginArming(std::move(state.draft), std::move(state.next));
  }

  // The regions are equal already, and nobody has served since.
  Outcome operator()(Changing& state, Done<Install>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    const uint64_t epoch = ++state.next.epoch;
    return {std::move(state), SealAnew{epoch}};
  }
  Outcome operator()(Changing& state, Done<SealAnew>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    return {std::move(state), Attach{}};
  }
  Outcome operator()(Changing& state, Done<Attach>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    return BeginArming(std::move(state.draft), std::move(state.next));
  }

  Outcome operator()(Arming& state, Done<Install>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    return {std::move(state), Arm{}};
  }
  Outcome operator()(Arming& state, Done<Arm>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    return {std::move(state), Remember{}};
  }
  Outcome operator()(Arming& state, Done<Remember>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status));
    return {std::move(state), Serve{}};
  }
  Outcome operator()(Arming& state, Done<Serve>& event) const {
    if (!event.status.ok()) return GiveBack(std::move(event.status), /*never_served=*/false);
    return {Serving{std::move(state.draft), std::move(state.next)}, End{}};
  }

  Outcome operator()(GivingBack& state, Done<Release>&) const {
    return Refuse(std::move(state.why));
  }

  template <class AnyState, class AnyEvent>
  Outcome operator()(AnyState&, AnyEvent&) const {
    return Refuse(Internal(Text("in state ", AnyState::kName, " nobody asked for this")));
  }

 private:
  Outcome Plan(Draft draft) const {
    Result<TakePlan> plan =
        PlanTake(draft.looks, draft.missing, wish_.region_size, wish_.rules, wish_.change);
    if (!plan.ok()) return Refuse(plan.status());
    draft.plan = std::move(plan).value();
    if (draft.plan.format) draft.plan.group = random_();
    const bool watch = !wish_.takeover && !NobodyToWatch(draft.looks);
    if (watch) return {Judging{std::move(draft)}, Watch{}};
    return {Judging{std::move(draft)}, Judge{}};
  }

  // A replica that must not be overwritten counts as missing, where replicas may be missing.
  static Draft Without(Draft draft, size_t refused, const Status& why) {
    const auto look = draft.looks.begin() + static_cast<std::ptrdiff_t>(refused);
    draft.missing.push_back({look->name, look->address, why.message(), /*refused=*/true});
    draft.looks.erase(look);
    return draft;
  }

  Outcome BeginSealing(Opening state) const {
    const Uuid owner = random_();
    const TakePlan& plan = state.draft.plan;
    HL_INVARIANT(plan.epoch != 0 && state.epoch >= plan.epoch);
    HL_INVARIANT(!plan.configuration.replicas.empty());
    Configuration next = plan.configuration;
    next.epoch = state.epoch;
    next.owner = OwnerDigest(owner);
    if (plan.forced) next.branch = {next.epoch, next.owner};
    const uint64_t epoch = next.epoch;
    return {Sealing{std::move(state.draft), std::move(next)}, Seal{epoch, owner}};
  }

  static Outcome BeginArming(Draft draft, Configuration next) {
    Install install{next};
    return {Arming{std::move(draft), std::move(next)}, std::move(install)};
  }

  static Result<Equalise> WhatTheGroupBecomes(const Draft& draft,
                                              const std::vector<MemberContent>& content) {
    if (draft.plan.format) return Equalise{Equalise::Fresh{}};
    const Result<Choice> best = ChooseMember(content, draft.plan.unserved);
    if (draft.stands_in_for.has_value())
      return OwnPoolStandsIn(*draft.stands_in_for, best, content);
    if (!best.ok()) return best.status();
    return Equalise{Equalise::Chosen{*best, SourcesFor(*best, content), CutLogs(*best, content),
                                     DescribeDamage(content)}};
  }

  // The own pool was compared with logs that ended at `judged`. They must be the same now.
  static Result<Equalise> OwnPoolStandsIn(const LogsEnd& judged, const Result<Choice>& best,
                                          const std::vector<MemberContent>& content) {
    if (judged.will_do && !best.ok()) return best.status();
    const LogsEnd end = EndOf(best, content);
    if (end != judged) {
      return Busy(
          "another primary writes: the replicas' logs are not those of a moment ago; try again "
          "when that one has closed");
    }
    if (!best.ok()) {
      return Equalise{
          Equalise::OwnPool{GreatestAcked(content),
                            Text("no replica's log has all that is known to be acknowledged (",
                                 best.status().message(), "), and the primary's own pool has it"),
                            content}};
    }
    return Equalise{Equalise::OwnPool{
        end.last_seq,
        Text("the replicas went back to older copies of their pools: the best of their logs, that "
             "of ",
             content[best->index].name, ", ends at record ", end.last_seq,
             ", and the primary's own pool proves that later ones were acknowledged"),
        content}};
  }

  const Wish& wish_;
  const Random& random_;
};

}  // namespace

Status TakenMeanwhile(std::string_view how) {
  return Busy(Text("another primary takes the group at the same time: ", how,
                   "; try again when that one has been refused or closed"));
}

Effect Taking::Step(Event event, const Random& random) {
  if (Begin* const begin = std::get_if<Begin>(&event)) wish_ = std::move(begin->wish);
  Outcome outcome = std::visit(Rules(wish_, random), state_, event);
  state_ = std::move(outcome.state);
  const bool over =
      std::holds_alternative<Serving>(state_) || std::holds_alternative<Refused>(state_);
  HL_INVARIANT(std::holds_alternative<End>(outcome.effect) == over);
  return std::move(outcome.effect);
}

const Draft& Taking::draft() const {
  static const Draft kNone;
  return std::visit(
      [](const auto& state) -> const Draft& {
        if constexpr (requires { state.draft; })
          return state.draft;
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

}  // namespace hyperloop::taking
