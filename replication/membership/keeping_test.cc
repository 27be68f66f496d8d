// The table of keeping a group: each row, and each failure, whatever carries the effects out.
#include "membership/keeping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "hyperloop/core/text.h"
#include "support/status_matchers.h"

namespace hyperloop::keeping {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";
constexpr uint64_t kRegion = 1 << 20;
constexpr Time kStart = Time(std::chrono::hours(1));
constexpr milliseconds kAbsence{2000}, kAnswer{500}, kPatience{5000};

std::string TextOf(const Row& row) {
  return Text(row.state, ", ", row.event, " -> ", row.next, ", ", row.effect);
}

// A machine, and what has become of it.
class Machine {
 public:
  Machine(const Terms& terms, const Configuration& configuration)
      : machine_(terms, configuration) {}

  // Also checks that kTable has the row.
  Machine& Then(Event event) {
    const std::string_view from = NameOf(machine_.state());
    std::string_view answered = NameOf(effect_);
    std::visit(
        [&](const auto& each) {
          if constexpr (requires { each.kName; }) answered = each.kName;
        },
        event);
    effect_ = machine_.Step(std::move(event), now_);
    const bool regains = machine_.outage() != nullptr;
    const auto row = std::ranges::find_if(kTable, [&](const Row& each) {
      return each.state == from && each.event == answered && each.next == state() &&
             each.effect == effect();
    });
    if (row != std::end(kTable)) rows_.insert(TextOf(*row));
    const bool failed = state() == "Withdrawing" || (regains && answered == "Lost");
    EXPECT_TRUE(row != std::end(kTable) || failed || answered == "Close")
        << from << ", " << answered << " -> " << state() << ", " << effect();
    return *this;
  }
  Machine& After(Duration time) {
    now_ += time;
    return *this;
  }
  Time now() const { return now_; }
  std::string_view state() const { return NameOf(machine_.state()); }
  std::string_view effect() const { return NameOf(effect_); }
  template <class T>
  const T& As() const {
    return std::get<T>(effect_);
  }
  const Outage& outage() const { return *machine_.outage(); }
  const Plan& plan() const { return *machine_.plan(); }
  const Group& group() const { return machine_.group(); }
  const Configuration& own() const { return group().configuration; }
  // Those of kTable that it has gone through.
  const std::set<std::string>& rows() const { return rows_; }

 private:
  Keeping machine_;
  Effect effect_ = End{};
  Time now_ = kStart;
  std::set<std::string> rows_;
};

std::vector<std::string> Addresses(const std::vector<Configuration::Replica>& replicas) {
  std::vector<std::string> out;
  for (const auto& each : replicas) out.push_back(each.address);
  return out;
}

// A group of r0:1, r1:1 and r2:1 under epoch 4.
class KeepingTest : public testing::Test {
 protected:
  KeepingTest() {
    own_.epoch = 4;
    own_.owner.fill(7);
    for (int i = 0; i < 3; ++i) own_.replicas.push_back(Replica(i));
    for (int i = 0; i < 3; ++i) members_.push_back({Hello(i)});
  }
  static std::string NodeId(int i) {
    return "00000000-0000-4000-8000-00000000000" + std::to_string(i);
  }
  static Configuration::Replica Replica(int i) {
    return {*ParseUuid(NodeId(i)), "r" + std::to_string(i) + ":1"};
  }
  control::HelloReplyT Hello(int i) const {
    control::HelloReplyT hello;
    hello.node_id = NodeId(i);
    hello.device = "ready";
    hello.region_size = kRegion;
    hello.group = kGroup;
    hello.sealed_epoch = hello.installed_epoch = hello.served_epoch = own_.epoch;
    hello.sealed_owner.assign(own_.owner.begin(), own_.owner.end());
    hello.served_owner = hello.sealed_owner;
    return hello;
  }
  // A replica that holds nothing.
  static control::HelloReplyT Fresh(int i) {
    control::HelloReplyT hello;
    hello.node_id = NodeId(i);
    hello.device = "ready";
    hello.region_size = kRegion;
    return hello;
  }
  // r2:1 is left out already.
  void Shrunken() {
    own_.absent = {own_.replicas.back()};
    own_.replicas.pop_back();
    members_.pop_back();
  }
  void ServedByAnother(size_t i) {
    members_[i].hello->served_epoch = members_[i].hello->sealed_epoch = 6;
    members_[i].hello->sealed_owner.assign(16, 9);
    members_[i].hello->served_owner = members_[i].hello->sealed_owner;
  }
  Terms Bears() const { return {{true, 0}, kAbsence, kAnswer, *ParseUuid(kGroup), kRegion}; }
  Terms Blocks() const {
    Terms terms = Bears();
    terms.rules.may_leave_out = false;
    return terms;
  }
  Lost Loss() const {
    Lost lost{Unavailable("an operation failed"), kStart, kPatience};
    lost.offers = offers_;
    return lost;
  }
  // Each begins anew, and leaves the machine behind the effect.
  Machine AtAsk(const Terms& terms) const {
    Machine run(terms, own_);
    return run.Then(Loss());
  }
  Machine AtAsk() const { return AtAsk(Bears()); }
  Machine AtAsked(Machine run) const { return run.Then(Asked{members_, offers_}); }
  Machine AtAsked() const { return AtAsked(AtAsk()); }
  // From Seal or Reconnect on, everything succeeds.
  Machine AtArmed(Machine run) const {
    run.effect() == "Seal" ? run.Then(Done<Seal>{}) : run.Then(Done<Reconnect>{});
    run.Then(Done<Attach>{}).Then(Done<Equalise>{});
    if (run.effect() == "Install") run.Then(Done<Install>{});
    return run.Then(Armed{{}, false, offers_});
  }
  static Machine Join(Machine run, control::HelloReplyT hello) {
    run.Then(JoinerAsked{std::move(hello), {"r0:1", "r1:1", "r2:1", "r3:1"}});
    return run.Then(Done<JudgeJoiner>{});
  }

  Configuration own_;
  std::vector<Asked::Member> members_;
  Offers offers_;
};

// --- members that are there

TEST_F(KeepingTest, WhoeverOwnsAllMembersReconnectsUnderTheSameEpoch) {
  Machine run = AtAsk();
  EXPECT_TRUE(run.As<Ask>().forgives);
  EXPECT_FALSE(run.outage().planned);
  run = AtAsked(run);
  EXPECT_EQ(run.effect(), "Reconnect");
  run = AtArmed(run);
  EXPECT_EQ(run.state(), "Serving");
  EXPECT_EQ(run.effect(), "Resume");
  EXPECT_EQ(run.own().epoch, 4u);
}

TEST_F(KeepingTest, WhatARivalThatGaveUpWasPromisedIsSealedAnew) {
  members_[1].hello->sealed_epoch = 5;
  members_[1].hello->sealed_owner.assign(16, 9);
  members_[1].hello->released = true;
  Machine run = AtAsked();
  EXPECT_EQ(run.As<Seal>().epoch, 6u);
  run.Then(Done<Seal>{}).Then(Done<Attach>{}).Then(Done<Equalise>{});
  EXPECT_EQ(run.As<Install>().configuration.epoch, 6u);
  EXPECT_FALSE(run.As<Install>().lasting);
  EXPECT_EQ(run.own().epoch, 4u) << "it is not installed yet";
  run.Then(Done<Install>{}).Then(Armed{});
  EXPECT_EQ(run.own().epoch, 6u);
  EXPECT_EQ(run.own().replicas, own_.replicas);
}

TEST_F(KeepingTest, ARivalThatMayLiveIsWatched) {
  members_[1].hello->sealed_epoch = 5;
  members_[1].hello->sealed_owner.assign(16, 9);
  members_[1].hello->heartbeat = 1;
  Machine run = AtAsked();
  EXPECT_EQ(run.effect(), "Withdraw");
  run.Then(Withdrawn{}).After(milliseconds(499)).Then(Paused{});
  EXPECT_EQ(AtAsked(run).effect(), "Withdraw") << "a heartbeat may take longer";
  run.After(milliseconds(1));
  EXPECT_EQ(AtAsked(run).effect(), "Seal");
  members_[1].hello->heartbeat = 2;
  EXPECT_EQ(AtAsked(run).effect(), "Withdraw");
}

TEST_F(KeepingTest, WhoseGroupAnotherOneHasServedIsFencedForGood) {
  ServedByAnother(0);
  ServedByAnother(1);
  Machine run = AtAsked();
  EXPECT_EQ(run.state(), "Fenced");
  EXPECT_THAT(run.As<Fence>().why, HasSubstr("another primary took the group"));
  run.Then(Loss());
  EXPECT_EQ(run.effect(), "Fence");
  run.Then(Close{});
  EXPECT_EQ(run.state(), "Closed");
  EXPECT_EQ(run.effect(), "End") << "nothing is given back";
}

// --- members that are not

TEST_F(KeepingTest, AMemberIsLeftOutOnceItWasNotHeardOfForLongEnough) {
  members_[1].hello.reset();
  Machine run = AtAsked(AtAsk().After(kAbsence - milliseconds(1)));
  EXPECT_EQ(run.effect(), "Withdraw");
  run.Then(Withdrawn{}).Then(Paused{});
  run = AtAsked(run.After(milliseconds(1)));
  EXPECT_EQ(run.As<Seal>().epoch, 5u);
  run = AtArmed(run);
  EXPECT_EQ(run.effect(), "Resume");
  EXPECT_THAT(Addresses(run.own().replicas), ElementsAre("r0:1", "r2:1"));
  EXPECT_THAT(Addresses(run.own().absent), ElementsAre("r1:1"));
}

TEST_F(KeepingTest, AGroupThatBlocksNeverGoesOnWithFewer) {
  members_[1].hello.reset();
  offers_.silent = {"r1:1"};
  for (const bool fails : {false, true}) {
    if (fails) members_[1] = {Hello(1), true};
    Machine run = AtAsk(Blocks());
    EXPECT_FALSE(run.As<Ask>().until.has_value());
    run = AtAsked(run.After(seconds(3600)));
    EXPECT_EQ(run.effect(), fails ? "Reconnect" : "Withdraw");
  }
}

TEST_F(KeepingTest, AMinorityNeverGoesOn) {
  members_[0].hello.reset();
  members_[1].hello.reset();
  offers_.silent = {"r0:1", "r1:1"};
  Machine run = AtAsked(AtAsk().After(seconds(3600)));
  EXPECT_EQ(run.effect(), "Withdraw");
  run.Then(Withdrawn{});
  EXPECT_THAT(run.As<GiveUp>().why, StatusIs(Code::kUnavailable, HasSubstr("2 are needed")));
}

TEST_F(KeepingTest, AMemberThatAnswersAndFailsAtItsWorkIsLeftOutAfterTheSameTime) {
  members_[1].failed = true;
  EXPECT_EQ(AtAsked(AtAsk().After(kAbsence - milliseconds(1))).effect(), "Reconnect");
  Machine run = AtAsked(AtAsk().After(kAbsence));
  ASSERT_EQ(run.effect(), "Seal");
  EXPECT_THAT(run.plan().judgement.reasons,
              ElementsAre(HasSubstr("answers requests, but its RNIC")));
  // What it says of another primary counts all the same.
  ServedByAnother(0);
  ServedByAnother(1);
  EXPECT_EQ(AtAsked(AtAsk().After(kAbsence)).effect(), "Fence");
}

TEST_F(KeepingTest, ASilentMemberIsLeftOutAtOnceUnlessAnotherOneFails) {
  offers_.silent = {"r1:1"};
  members_[1].hello.reset();
  EXPECT_EQ(AtAsked().effect(), "Seal");
  members_[1] = {Hello(1)};
  members_[2].hello.reset();
  EXPECT_EQ(AtAsked().effect(), "Withdraw");
}

TEST_F(KeepingTest, AMemberWhoseContentMustStayIsLeftOut) {
  members_[2].why = "r2 holds what nobody else has";
  Machine run = AtAsked(AtAsk().After(kAbsence));
  ASSERT_EQ(run.effect(), "Seal");
  EXPECT_THAT(Addresses(run.plan().next.absent), ElementsAre("r2:1"));
}

TEST_F(KeepingTest, QuestionsEndBeforeItIsDecidedWhoIsLeftOut) {
  Machine run = AtAsk();
  EXPECT_EQ(run.As<Ask>().most, kAnswer);
  EXPECT_EQ(run.As<Ask>().until, kStart + kAbsence);
  members_[1].hello.reset();
  run = AtAsked(run.After(kAbsence - milliseconds(700)));
  run.Then(Withdrawn{}).Then(Paused{});
  EXPECT_EQ(run.As<Ask>().most, milliseconds(700));
  run = AtAsked(run.After(milliseconds(650)));
  run.Then(Withdrawn{}).Then(Paused{});
  EXPECT_EQ(run.As<Ask>().most, kAnswer);
  // At the end of the call's time there is still time for an answer.
  Lost hurried = Loss();
  hurried.patience = milliseconds(0);
  EXPECT_EQ(Machine(Bears(), own_).Then(hurried).As<Ask>().most, milliseconds(200));
}

// --- what fails

TEST_F(KeepingTest, WhatFailsIsTriedAgainUntilThePatienceIsOver) {
  const Status failed = Unavailable("it failed");
  members_[1].hello->sealed_epoch = 5;  // an attempt of this primary's that was cut short
  const Machine sealing = AtAsked();
  ASSERT_EQ(sealing.effect(), "Seal");
  const auto equalising = [&] { return Machine(sealing).Then(Done<Seal>{}).Then(Done<Attach>{}); };
  std::vector<Machine> runs = {
      Machine(sealing).Then(Done<Seal>{failed}),
      Machine(sealing).Then(Done<Seal>{}).Then(Done<Attach>{failed}),
      equalising().Then(Done<Equalise>{failed}),
      equalising().Then(Done<Equalise>{}).Then(Done<Install>{failed}),
      equalising().Then(Done<Equalise>{}).Then(Done<Install>{}).Then(Armed{failed})};
  for (Machine& each : runs) {
    EXPECT_EQ(each.state(), "Withdrawing");
    EXPECT_EQ(Machine(each).Then(Withdrawn{}).effect(), "Pause");
    each.After(kPatience).Then(Withdrawn{});
    EXPECT_EQ(each.As<GiveUp>().why.message(), failed.message());
    EXPECT_FALSE(each.As<GiveUp>().lasts);
    Lost again = Loss();
    again.heard = each.now();
    each.Then(again);
    EXPECT_EQ(each.outage().since, kStart) << "the outage is the same";
    EXPECT_FALSE(each.As<Ask>().forgives);
  }
  EXPECT_EQ(runs[3].own().epoch, 4u);
  EXPECT_EQ(runs[4].own().epoch, 6u) << "that is installed";
}

TEST_F(KeepingTest, CorruptionEndsTheCallAtOnce) {
  Machine run = AtAsked().Then(Done<Reconnect>{}).Then(Done<Attach>{});
  run.Then(Done<Equalise>{Corruption("lost")}).Then(Withdrawn{});
  EXPECT_TRUE(run.As<GiveUp>().lasts);
  EXPECT_EQ(run.As<GiveUp>().why.code(), Code::kCorruption);
}

TEST_F(KeepingTest, AStoreThatIsBeingClosedGivesUp) {
  Lost lost = Loss();
  lost.closing = true;
  Machine run(Bears(), own_);
  run.Then(lost);
  EXPECT_EQ(run.effect(), "Withdraw");
  run.Then(Withdrawn{false, true});
  EXPECT_THAT(run.As<GiveUp>().why, StatusIs(Code::kUnavailable, HasSubstr("being closed")));
  members_[1].hello.reset();
  run = AtAsked().Then(Withdrawn{}).Then(Paused{true});
  EXPECT_EQ(run.effect(), "GiveUp");
  run.Then(Close{});
  EXPECT_EQ(run.effect(), "Release");
  run.Then(Done<Release>{});
  EXPECT_EQ(run.state(), "Closed");
}

// --- replicas that join

TEST_F(KeepingTest, AReplicaThatIsBackIsTakenIn) {
  Shrunken();
  offers_.ready = {"r2:1"};
  Machine run = AtAsk();
  EXPECT_TRUE(run.outage().planned);
  EXPECT_FALSE(run.As<Ask>().until.has_value()) << "it reads its region, and nobody is left out";
  run = AtAsked(run);
  EXPECT_EQ(run.As<AskJoiner>().address, "r2:1");
  control::HelloReplyT hello = Hello(2);
  hello.sealed_epoch = 9;
  run = AtArmed(Join(run, hello));
  EXPECT_EQ(run.As<Resume>().joined, "r2:1");
  EXPECT_EQ(run.own().epoch, 10u) << "beyond what it has promised";
  EXPECT_THAT(Addresses(run.own().replicas), ElementsAre("r0:1", "r1:1", "r2:1"));
  EXPECT_EQ(run.group().unproven, "r2:1");
  run.Then(Worked{});
  EXPECT_EQ(run.group().unproven, "");
}

TEST_F(KeepingTest, OneAtATimeJoins) {
  Shrunken();
  offers_.ready = {"r2:1"};
  offers_.newcomer = "r3:1";
  EXPECT_EQ(AtAsk().outage().joiner, "r2:1");
  offers_.leaver = "r2:1";
  EXPECT_EQ(AtAsk().outage().joiner, "");
  offers_.leaver.reset();
  Machine run = AtArmed(Join(AtAsked(), Hello(2)));
  run.Then(Loss());
  EXPECT_EQ(run.outage().joiner, "") << "the one that joined last is not proved yet";
}

// Also if on_replica_failure says that nobody is left out: all worked without it.
TEST_F(KeepingTest, AReplicaThatFailsAsSoonAsItWasTakenInGoesAgain) {
  Shrunken();
  offers_.ready = {"r2:1"};
  for (const Terms& terms : {Bears(), Blocks()}) {
    Machine run = AtArmed(Join(AtAsked(AtAsk(terms)), Hello(2)));
    own_.epoch = run.own().epoch;
    std::vector<Asked::Member> now = {{Hello(0)}, {Hello(1)}, {Hello(2)}};
    run.Then(Loss()).Then(Asked{now, {}});
    ASSERT_EQ(run.effect(), "Seal");
    EXPECT_THAT(Addresses(run.plan().next.absent), ElementsAre("r2:1"));
    own_.epoch = 4;
  }
}

TEST_F(KeepingTest, TheMembersDoNotWaitForAJoinerTwice) {
  Shrunken();
  offers_.ready = {"r2:1"};
  const Status failed = Unavailable("it failed");
  const std::vector<std::string> chain = {"r0:1", "r1:1", "r2:1"};
  control::HelloReplyT other = Hello(2);
  other.region_size /= 2;
  Machine installed = Join(AtAsked(), Hello(2));
  installed.Then(Done<Seal>{}).Then(Done<Attach>{}).Then(Done<Equalise>{}).Then(Done<Install>{});
  std::vector<Machine> runs = {
      AtAsked().Then(JoinerAsked{failed}), AtAsked().Then(JoinerAsked{other, chain}),
      AtAsked().Then(JoinerAsked{Hello(2), chain}).Then(Done<JudgeJoiner>{failed}),
      Join(AtAsked(), Hello(2)).Then(Done<Seal>{failed}), installed.Then(Armed{failed})};
  for (Machine& each : runs) {
    ASSERT_EQ(each.effect(), "Withdraw");
    each.After(kPatience + seconds(1)).Then(Withdrawn{});
    EXPECT_EQ(each.As<PutOff>().joiner, "r2:1");
    each.Then(Done<PutOff>{});
    ASSERT_EQ(each.effect(), "Ask");
    EXPECT_EQ(each.outage().joiner, "");
    EXPECT_EQ(each.outage().deadline, each.now() + kPatience);
  }
  EXPECT_EQ(runs[3].group().unproven, "");
  EXPECT_EQ(runs[4].group().unproven, "r2:1") << "it counts, and is the one that fails";
  // A failure of this node's own is nobody's fault.
  Machine own = Join(AtAsked(), Hello(2));
  own.Then(Done<Seal>{}).Then(Done<Attach>{}).Then(Done<Equalise>{}).Then(Done<Install>{});
  own.Then(Armed{failed}).Then(Withdrawn{true, false});
  EXPECT_EQ(own.group().unproven, "");
}

TEST_F(KeepingTest, WhyAReplicaIsNeverTakenInIsToldTheMembers) {
  Shrunken();
  offers_.ready = {"r2:1"};
  Machine run = AtAsked();
  run.Then(JoinerAsked{Hello(2), {"r0:1", "r1:1", "r2:1"}});
  run.Then(Done<JudgeJoiner>{InvalidArgument("it is ahead")}).Then(Withdrawn{});
  run = AtAsked(run.Then(Done<PutOff>{}));
  EXPECT_EQ(run.effect(), "Seal") << "although all of them serve this epoch";
  run = AtArmed(run);
  EXPECT_FALSE(run.group().tells_absences);
  EXPECT_EQ(run.own().replicas, own_.replicas);
}

// --- additions and removals

TEST_F(KeepingTest, ANewReplicaIsRecordedBeforeItIsTakenIn) {
  offers_.newcomer = "r3:1";
  Machine run = Join(AtAsked(), Fresh(3));
  run.Then(Done<Seal>{}).Then(Done<Attach>{}).Then(Done<Equalise>{});
  EXPECT_TRUE(run.As<Install>().lasting);
  EXPECT_THAT(Addresses(run.As<Install>().configuration.replicas),
              ElementsAre("r0:1", "r1:1", "r2:1"));
  EXPECT_THAT(Addresses(run.As<Install>().configuration.absent), ElementsAre("r3:1"));
  run.Then(Done<Install>{}).Then(Armed{});
  EXPECT_EQ(run.group().announced, "r3:1");
  EXPECT_EQ(run.group().unproven, "");
  own_ = run.own();
  members_ = {{Hello(0)}, {Hello(1)}, {Hello(2)}};
  offers_ = {};
  offers_.ready = {"r3:1"};
  run = AtArmed(Join(AtAsked(run.Then(Loss())), Fresh(3)));
  EXPECT_EQ(run.own().replicas.size(), 4u);
  EXPECT_EQ(run.group().announced, "");
}

TEST_F(KeepingTest, AnAdditionThatDoesNotComeAboutIsTakenBack) {
  offers_.newcomer = "r3:1";
  Machine run = AtArmed(Join(AtAsked(), Fresh(3)));
  own_ = run.own();
  members_ = {{Hello(0)}, {Hello(1)}, {Hello(2)}};
  offers_ = {};
  offers_.ready = {"r3:1"};
  run = AtAsked(run.Then(Loss())).Then(JoinerAsked{Unavailable("gone")});
  EXPECT_FALSE(Machine(run).Then(Withdrawn{true, false}).As<PutOff>().taken_back);
  run.Then(Withdrawn{});
  EXPECT_TRUE(run.As<PutOff>().taken_back);
  run = AtAsked(run.Then(Done<PutOff>{}));
  ASSERT_EQ(run.effect(), "Seal");
  EXPECT_THAT(run.plan().next.absent, IsEmpty());
  run = AtArmed(run);
  EXPECT_EQ(run.As<Resume>().gone, "r3:1");
  EXPECT_FALSE(run.As<Resume>().left);
  EXPECT_EQ(run.group().announced, "");
}

TEST_F(KeepingTest, AReplicaLeavesForAsLongAsSomebodyProposesIt) {
  Shrunken();
  offers_.leaver = "r2:1";
  Machine run = AtAsk();
  EXPECT_TRUE(run.outage().planned);
  EXPECT_TRUE(run.group().leaves);
  Machine other = run;
  other.Then(Asked{members_, {}});
  EXPECT_EQ(other.effect(), "Reconnect") << "nobody proposes it any more";
  run = AtAsked(run);
  ASSERT_EQ(run.effect(), "Seal");
  EXPECT_THAT(run.plan().next.absent, IsEmpty());
  run = AtArmed(run);
  EXPECT_EQ(run.As<Resume>().gone, "r2:1");
  EXPECT_TRUE(run.As<Resume>().left);
  // One that was to leave, and is not to any more.
  offers_ = {};
  other = AtArmed(other);
  EXPECT_TRUE(other.group().leaves);
  other.Then(Loss());
  EXPECT_FALSE(other.group().leaves);
  EXPECT_EQ(other.group().taken_back, "");
}

TEST_F(KeepingTest, NoReplicaLeavesWhileFewHoldTheFiles) {
  Shrunken();
  offers_.leaver = "r2:1";
  offers_.few_hold = true;
  EXPECT_EQ(AtAsked().effect(), "Reconnect");
}

// The members work, and are interrupted once more.
TEST_F(KeepingTest, AReplicaThatMayLeaveOnlyNowLeavesAtOnce) {
  Shrunken();
  offers_.leaver = "r2:1";
  Machine run = AtAsk().Then(Asked{members_, {}});
  run = AtArmed(run.After(seconds(1)));
  ASSERT_EQ(run.effect(), "Ask");
  EXPECT_TRUE(run.As<Ask>().forgives);
  EXPECT_EQ(run.outage().deadline, run.now() + kPatience);
  Machine again = run;
  again.Then(Asked{members_, {}});
  EXPECT_EQ(AtArmed(again).effect(), "Resume") << "but not twice";
  EXPECT_EQ(AtArmed(AtAsked(run)).As<Resume>().gone, "r2:1");
  run = AtAsk().Then(Asked{members_, {}}).Then(Done<Reconnect>{}).Then(Done<Attach>{});
  run.Then(Done<Equalise>{}).Then(Armed{{}, true, offers_});
  EXPECT_EQ(run.effect(), "Resume") << "a store that is being closed changes nothing";
}

// --- the machine

TEST_F(KeepingTest, AnAnswerThatNobodyAskedForChangesNothing) {
  Keeping machine(Bears(), own_);
  const Effect effect = machine.Step(Done<Seal>{}, kStart);
  EXPECT_THAT(std::get<GiveUp>(effect).why, StatusIs(Code::kInternal, HasSubstr("Serving")));
  EXPECT_EQ(machine.group().configuration.replicas, own_.replicas);
}

// What carried an effect out may have ended by an exception.
TEST_F(KeepingTest, ACallThatEndedWithoutAWordIsFollowedByTheNext) {
  members_[1].hello->sealed_epoch = 5;
  Machine run = AtAsked().Then(Done<Seal>{}).Then(Done<Attach>{}).Then(Done<Equalise>{});
  run.Then(Loss());
  EXPECT_EQ(run.effect(), "Ask");
  EXPECT_EQ(run.own().epoch, 4u);
  run.Then(Close{});
  EXPECT_EQ(run.effect(), "Release");
}

TEST_F(KeepingTest, EachRowIsTaken) {
  std::set<std::string> taken;
  const auto note = [&](const Machine& run) { taken.insert(run.rows().begin(), run.rows().end()); };
  const auto close = [&](Machine run) { note(run.Then(Close{}).Then(Done<Release>{})); };
  close(AtArmed(AtAsked()).Then(Worked{}));
  Lost closing = Loss();
  closing.closing = true;
  Machine run(Bears(), own_);
  run.Then(closing).Then(Withdrawn{false, true}).Then(closing).Then(Withdrawn{false, true});
  run.Then(Loss());
  note(run);
  note(AtAsked().Then(Done<Reconnect>{Internal("")}).Then(Withdrawn{}).Then(Paused{}));
  note(AtAsked().Then(Done<Reconnect>{Internal("")}).Then(Withdrawn{}).Then(Paused{true}));
  close(AtAsked().Then(Done<Reconnect>{Corruption("")}).Then(Withdrawn{}));
  const std::vector<Asked::Member> all = members_;
  ServedByAnother(0);
  ServedByAnother(1);
  note(AtAsked().Then(Loss()).Then(Close{}));
  members_ = all;
  members_[0].hello.reset();
  note(AtAsked());
  note(AtArmed(AtAsked(AtAsk().After(kAbsence))));
  members_ = all;
  Shrunken();
  offers_.ready = {"r2:1"};
  note(AtArmed(Join(AtAsked(), Hello(2))));
  note(AtAsked().Then(JoinerAsked{Internal("")}).Then(Withdrawn{}).Then(Done<PutOff>{}));
  offers_ = {};
  offers_.leaver = "r2:1";
  note(AtArmed(AtAsk().Then(Asked{members_, {}})));
  for (const Row& each : kTable) EXPECT_TRUE(taken.contains(TextOf(each))) << TextOf(each);
}

}  // namespace
}  // namespace hyperloop::keeping
