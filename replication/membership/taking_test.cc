// The table of takings: each row, and each failure, whatever carries the effects out.
#include "membership/taking.h"

#include <algorithm>
#include <set>

#include "hyperloop/core/text.h"
#include "membership/take_plan_fixture.h"

namespace hyperloop::taking {
namespace {

using testing::HasSubstr;

std::string TextOf(const Row& row) {
  return Text(row.state, ", ", row.answered, " -> ", row.next, ", ", row.effect);
}

// A machine, and what has become of it.
class Machine {
 public:
  // Also checks that kTable has the row.
  Machine& Then(Event event) {
    const std::string_view from = NameOf(machine_.state());
    const std::string_view answered = std::holds_alternative<Begin>(event) ? "" : NameOf(effect_);
    effect_ = machine_.Step(std::move(event), [] { return *ParseUuid(kOther); });
    const auto row = std::ranges::find_if(kTable, [&](const Row& each) {
      return each.state == from && each.answered == answered && each.next == state() &&
             each.effect == effect();
    });
    if (row != std::end(kTable)) rows_.insert(TextOf(*row));
    const bool failed = state() == "Refused" || state() == "GivingBack";
    EXPECT_TRUE(row != std::end(kTable) || failed)
        << from << ", " << answered << " -> " << state() << ", " << effect();
    return *this;
  }
  std::string_view state() const { return NameOf(machine_.state()); }
  std::string_view effect() const { return NameOf(effect_); }
  template <class T>
  const T& As() const {
    return std::get<T>(effect_);
  }
  Status why() const {
    if (const auto* refused = std::get_if<Refused>(&machine_.state())) return refused->why;
    return std::get<GivingBack>(machine_.state()).why;
  }
  const Taking& machine() const { return machine_; }
  // Those of kTable that it has gone through.
  const std::set<std::string>& rows() const { return rows_; }

 private:
  Taking machine_;
  Effect effect_;
  std::set<std::string> rows_;
};

class TakingTest : public PlanTest {
 protected:
  TakingTest() { AllOfGroup(5); }
  // The answers, after a heartbeat of the first one's owner.
  std::vector<MemberLook> AfterABeat() const {
    std::vector<MemberLook> looks = members_;
    ++looks[0].hello.heartbeat;
    return looks;
  }
  void NobodyHolds() {
    for (MemberLook& each : members_) each.hello.released = true;
  }
  std::vector<MemberContent> Contents() const {
    std::vector<MemberContent> contents;
    for (const MemberLook& each : members_) {
      MemberContent content{each.name, {}};
      content.content.installed_epoch = 5;
      content.content.last_seq = content.content.acked_seq = 7;
      contents.push_back(content);
    }
    return contents;
  }
  // Each begins anew, and leaves the machine behind the effect.
  Machine AtLooked() { return Machine().Then(Begin{wish_}).Then(Looked{members_, missing_}); }
  Machine AtJudged(Judged judged = {}) {
    Machine run = AtLooked();
    if (run.effect() == "Watch") run.Then(Watched{members_, true});
    return run.Then(std::move(judged));
  }
  Machine AtSealed() {
    Machine run = AtJudged().Then(Opened{});
    if (run.effect() == "Ask") run.Then(Asked{members_});
    return run.Then(Sealed{Contents()});
  }
  Machine AtEqualised() { return AtSealed().Then(Done<Attach>{}).Then(Done<Equalise>{}); }

  Wish wish_;
  std::vector<MissingReplica> missing_;
};

TEST_F(TakingTest, TheWayToServing) {
  Machine run;
  EXPECT_EQ(run.state(), "Closed");
  run.Then(Begin{wish_}).Then(Looked{members_, {}});
  EXPECT_EQ(run.effect(), "Watch");
  run.Then(Watched{members_, false}).Then(Watched{members_, true}).Then(Judged{});
  run.Then(Opened{}).Then(Asked{members_});
  EXPECT_EQ(run.As<Seal>().epoch, 6u);
  run.Then(Sealed{Contents()}).Then(Done<Attach>{});
  EXPECT_EQ(std::get<Equalise::Chosen>(run.As<Equalise>().from).choice.known_acked, 7u);
  run.Then(Done<Equalise>{});
  EXPECT_FALSE(run.As<Install>().lasting);
  EXPECT_EQ(run.As<Install>().configuration.epoch, 6u);
  run.Then(Done<Install>{}).Then(Done<Arm>{}).Then(Done<Remember>{}).Then(Done<Serve>{});
  EXPECT_EQ(run.state(), "Serving");
  EXPECT_EQ(run.effect(), "End");
}

TEST_F(TakingTest, ANewGroupIsNamedAndNobodyIsWatched) {
  for (MemberLook& each : members_) each.hello.sealed_epoch = each.hello.installed_epoch = 0;
  Machine run = AtLooked();
  EXPECT_EQ(run.effect(), "Judge");
  EXPECT_EQ(run.machine().draft().plan.group, *ParseUuid(kOther));
  run = AtSealed().Then(Done<Attach>{});
  EXPECT_TRUE(std::holds_alternative<Equalise::Fresh>(run.As<Equalise>().from));
}

TEST_F(TakingTest, ALivingOwnerIsNotTakenOverFromWithoutAWord) {
  EXPECT_THAT(AtLooked().Then(Watched{AfterABeat(), false}).why(),
              StatusIs(Code::kBusy, HasSubstr("takeover=true")));
  EXPECT_THAT(AtJudged().Then(Opened{}).Then(Asked{AfterABeat()}).why(), StatusIs(Code::kBusy));
  wish_.takeover = true;
  EXPECT_EQ(AtLooked().effect(), "Judge");
  EXPECT_EQ(AtJudged().Then(Opened{}).effect(), "Seal");
}

TEST_F(TakingTest, WhatARivalMovedIsNotDamaged) {
  const Machine doubting = AtJudged({Corruption("a record is missing")});
  EXPECT_EQ(doubting.state(), "Doubting");
  EXPECT_THAT(Machine(doubting).Then(Asked{members_}).why(), StatusIs(Code::kCorruption));
  std::vector<MemberLook> moved = members_;
  moved[1].hello.sealed_epoch = 6;
  EXPECT_THAT(Machine(doubting).Then(Asked{moved}).why(),
              StatusIs(Code::kBusy, HasSubstr("replica r1 is at epoch 6")));
  EXPECT_EQ(Machine(doubting).Then(Asked{Unavailable("")}).why().code(), Code::kUnavailable);
}

TEST_F(TakingTest, AJoinerThatMustNotBeOverwrittenIsLeftOutIfItMayBe) {
  for (MemberLook& each : members_) {
    each.hello.installed_nodes.pop_back();
    each.hello.installed_replicas.pop_back();
    each.hello.absent_nodes = {NodeId(2)};
    each.hello.absent_replicas = {"10.0.0.2:7000"};
  }
  const Judged refused{InvalidArgument("it is ahead"), 2};
  EXPECT_EQ(AtJudged(refused).why().message(), "it is ahead");
  wish_.rules.may_leave_out = true;
  Machine run = AtJudged(refused);
  EXPECT_EQ(run.effect(), "Watch");
  ASSERT_EQ(run.machine().draft().missing.size(), 1u);
  EXPECT_TRUE(run.machine().draft().missing[0].refused);
  EXPECT_EQ(run.machine().draft().plan.configuration.replicas.size(), 2u);
  NobodyHolds();
  EXPECT_EQ(AtJudged(refused).effect(), "Judge");
}

TEST_F(TakingTest, AChangeIsFirstInstalledAtThoseThatStay) {
  NobodyHolds();
  wish_.change.removed = members_[2].address;
  members_.pop_back();
  Machine run = AtEqualised();
  EXPECT_EQ(run.state(), "Changing");
  EXPECT_TRUE(run.As<Install>().lasting);
  EXPECT_EQ(run.As<Install>().configuration.absent.size(), 1u);
  run.Then(Done<Install>{});
  EXPECT_EQ(run.As<SealAnew>().epoch, 7u);
  run.Then(Done<SealAnew>{}).Then(Done<Attach>{});
  EXPECT_FALSE(run.As<Install>().lasting);
  EXPECT_EQ(run.As<Install>().configuration.epoch, 7u);
  EXPECT_TRUE(run.As<Install>().configuration.absent.empty());
}

TEST_F(TakingTest, ThoseThatAreLeftByForceBeginABranch) {
  wish_.rules = {true, 0, {members_[1].address, members_[2].address}};
  missing_ = {{members_[1].name, members_[1].address, "lost"},
              {members_[2].name, members_[2].address, "lost"}};
  members_.resize(1);
  const Configuration next = AtEqualised().As<Install>().configuration;
  EXPECT_EQ(next.branch.epoch, 6u);
  EXPECT_EQ(next.branch.owner, next.owner);
}

TEST_F(TakingTest, AnOwnPoolStandsInOnlyForTheLogsThatItWasComparedWith) {
  const Judged judged{{}, std::nullopt, LogsEnd{true, 7}};
  Machine run = AtJudged(judged).Then(Opened{{}, 20});
  run.Then(Asked{members_});
  EXPECT_EQ(run.As<Seal>().epoch, 21u) << "beyond each record of the pool";
  Machine(run).Then(Sealed{Contents()}).Then(Done<Attach>{});
  EXPECT_EQ(std::get<Equalise::OwnPool>(
                Machine(run).Then(Sealed{Contents()}).Then(Done<Attach>{}).As<Equalise>().from)
                .known_acked,
            7u);
  std::vector<MemberContent> moved = Contents();
  for (MemberContent& each : moved) each.content.last_seq = 8;
  EXPECT_THAT(run.Then(Sealed{moved}).Then(Done<Attach>{}).why(), StatusIs(Code::kBusy));
}

// Before Sealing nothing is to be given back. Once a record may have been written, the members must
// not serve the former owner again.
TEST_F(TakingTest, WhatFailsIsRefusedOrGivenBack) {
  const Status failed = Unavailable("it failed");
  EXPECT_EQ(Machine().Then(Begin{wish_}).Then(Looked{failed, {}}).why().code(), failed.code());
  EXPECT_EQ(AtLooked().Then(Watched{failed, false}).why().code(), failed.code());
  EXPECT_EQ(AtJudged({failed}).effect(), "End");
  EXPECT_EQ(AtJudged().Then(Opened{failed}).effect(), "End");
  EXPECT_EQ(AtJudged().Then(Opened{}).Then(Asked{failed}).effect(), "End");
  NobodyHolds();
  Machine at_seal = AtJudged().Then(Opened{});
  at_seal.Then(Asked{members_});
  wish_.change.removed = members_[2].address;
  std::vector<Machine> runs = {at_seal.Then(Sealed{failed}), AtSealed().Then(Done<Attach>{failed}),
                               AtSealed().Then(Done<Attach>{}).Then(Done<Equalise>{failed}),
                               AtEqualised().Then(Done<Install>{failed})};
  Machine arming = AtEqualised().Then(Done<Install>{});
  runs.push_back(Machine(arming).Then(Done<Arm>{failed}));
  runs.push_back(Machine(arming).Then(Done<Arm>{}).Then(Done<Remember>{failed}));
  for (Machine& each : runs) {
    EXPECT_EQ(each.state(), "GivingBack");
    EXPECT_TRUE(each.As<Release>().never_served);
    EXPECT_EQ(each.Then(Done<Release>{}).why().code(), failed.code());
    EXPECT_EQ(each.effect(), "End");
  }
  arming.Then(Done<Arm>{}).Then(Done<Remember>{}).Then(Done<Serve>{failed});
  EXPECT_FALSE(arming.As<Release>().never_served);
  // A release that fails changes nothing of it.
  EXPECT_EQ(arming.Then(Done<Release>{Internal("")}).why().code(), failed.code());
}

TEST_F(TakingTest, AnAnswerThatNobodyAskedForIsRefused) {
  EXPECT_THAT(Machine().Then(Done<Arm>{}).why(), StatusIs(Code::kInternal, HasSubstr("Closed")));
}

TEST_F(TakingTest, EachRowIsTaken) {
  std::set<std::string> taken;
  const auto note = [&](const Machine& run) { taken.insert(run.rows().begin(), run.rows().end()); };
  const auto to_the_end = [&](Machine run) {
    run.Then(Done<Install>{}).Then(Done<Arm>{}).Then(Done<Remember>{}).Then(Done<Serve>{});
    note(run);
  };
  note(AtLooked().Then(Watched{members_, false}));
  note(AtJudged({Corruption("")}));
  note(AtSealed().Then(Done<Attach>{Internal("")}).Then(Done<Release>{}));
  to_the_end(AtEqualised());
  wish_.takeover = true;
  note(AtSealed());
  // A joiner is refused, with and without an owner to be watched.
  for (MemberLook& each : members_) each.hello.absent_nodes = {NodeId(2)};
  for (MemberLook& each : members_) each.hello.absent_replicas = {members_[2].address};
  for (MemberLook& each : members_) each.hello.installed_nodes.pop_back();
  for (MemberLook& each : members_) each.hello.installed_replicas.pop_back();
  wish_.rules.may_leave_out = true;
  note(AtJudged({InvalidArgument(""), 2}));
  wish_.takeover = false;
  note(AtJudged({InvalidArgument(""), 2}));
  // The absent one is removed.
  wish_.change.removed = members_[2].address;
  members_.pop_back();
  to_the_end(AtEqualised().Then(Done<Install>{}).Then(Done<SealAnew>{}).Then(Done<Attach>{}));
  for (const Row& each : kTable) EXPECT_TRUE(taken.contains(TextOf(each))) << TextOf(each);
}

}  // namespace
}  // namespace hyperloop::taking
