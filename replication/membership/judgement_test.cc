// What a primary whose group stopped answering makes of the members' answers, and which replicas it
// takes in again.
#include "membership/judgement.h"

#include <algorithm>

#include "membership/replica_lists.h"
#include "membership/standing.h"
#include "membership/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StandingTest : public testing::Test {
 protected:
  StandingTest() {
    own_.epoch = 4;
    own_.owner = *ParseUuid(kGroup);
    for (int i = 0; i < 3; ++i) {
      const std::string node = "00000000-0000-4000-8000-00000000000" + std::to_string(i);
      own_.replicas.push_back({*ParseUuid(node), "r" + std::to_string(i)});
      control::HelloReplyT hello;
      hello.node_id = node;
      hello.sealed_epoch = hello.installed_epoch = hello.served_epoch = 4;
      hello.sealed_owner.assign(own_.owner.begin(), own_.owner.end());
      hello.served_owner = hello.sealed_owner;
      now_.emplace_back(hello);
    }
  }
  void SealForAnother(size_t i, uint64_t epoch) {
    now_[i]->sealed_epoch = epoch;
    now_[i]->sealed_owner.assign(16, 9);
    now_[i]->sealed_owner_name = "the other";
  }
  Judgement Judge(size_t least = SIZE_MAX) { return JudgeStanding(own_, before_, now_, least); }
  Configuration own_;
  std::vector<std::optional<control::HelloReplyT>> before_, now_;
};

TEST_F(StandingTest, OwnerEverywhereGoesOn) { EXPECT_EQ(Judge().standing, Standing::kOwner); }

TEST_F(StandingTest, OneThatDoesNotAnswerIsWaitedFor) {
  now_[1].reset();
  EXPECT_EQ(Judge().standing, Standing::kWait);
  EXPECT_THAT(Judge().why, HasSubstr("r1"));
}

// It was started on another copy of its pool, which is not overwritten.
TEST_F(StandingTest, OneThatHasInstalledTheEpochForAnotherPrimaryIsMissing) {
  now_[1]->sealed_owner.assign(16, 9);
  now_[1]->served_owner = now_[1]->sealed_owner;
  now_[1]->released = true;
  EXPECT_EQ(Judge().standing, Standing::kWait);
  EXPECT_THAT(Judge().why, AllOf(HasSubstr("r1 has installed epoch 4 for another primary"),
                                 HasSubstr("keep this one")));
  EXPECT_EQ(Judge(2).standing, Standing::kShrink);
  EXPECT_THAT(Judge(2).missing, testing::ElementsAre(1));
}

// Nothing else says that it must not be overwritten.
TEST_F(StandingTest, OneWhoseContentIsRefusedIsMissing) {
  const std::vector<std::string> refused{"", "r1 holds another history", ""};
  EXPECT_EQ(JudgeStanding(own_, before_, now_, SIZE_MAX, refused).standing, Standing::kWait);
  const Judgement judged = JudgeStanding(own_, before_, now_, 2, refused);
  EXPECT_EQ(judged.standing, Standing::kShrink);
  EXPECT_THAT(judged.missing, testing::ElementsAre(1));
  EXPECT_THAT(judged.reasons, testing::ElementsAre(refused[1]));
  EXPECT_EQ(judged.why, refused[1]);
}

TEST_F(StandingTest, EnoughOfThemGoOnWithoutTheOthers) {
  now_[1].reset();
  const Judgement judged = Judge(2);
  EXPECT_EQ(judged.standing, Standing::kShrink);
  EXPECT_EQ(judged.epoch, 5u);
  EXPECT_THAT(judged.missing, testing::ElementsAre(1));
  EXPECT_EQ(Judge(3).standing, Standing::kWait);
  EXPECT_THAT(Judge(3).why, HasSubstr("3 are needed"));
  now_[2].reset();
  EXPECT_EQ(Judge(2).standing, Standing::kWait);
}

// The others would be sealed step by step for ever.
TEST_F(StandingTest, OneWhoseEpochsNoTakingsExplainIsMissing) {
  now_[1]->sealed_epoch = 4 + (1 << 20);
  EXPECT_EQ(Judge(2).standing, Standing::kReclaim);
  for (uint64_t control::HelloReplyT::*const epoch :
       {&control::HelloReplyT::sealed_epoch, &control::HelloReplyT::served_epoch}) {
    (*now_[1]).*epoch = 5 + (1 << 20);
    const Judgement judged = Judge(2);
    EXPECT_EQ(judged.standing, Standing::kShrink);
    EXPECT_EQ(judged.epoch, 5u);
    EXPECT_THAT(judged.why, HasSubstr("r1 says that it is at epoch"));
    EXPECT_EQ(Judge().standing, Standing::kWait);
    (*now_[1]).*epoch = 4;
  }
}

TEST_F(StandingTest, ALostPoolIsAReplicaLess) {
  now_[1]->node_id = kOther;
  now_[1]->installed_epoch = now_[1]->served_epoch = now_[1]->sealed_epoch = 0;
  now_[1]->sealed_owner.clear();
  EXPECT_EQ(Judge().standing, Standing::kWait);
  EXPECT_THAT(Judge().why, HasSubstr("lost its pool"));
  EXPECT_EQ(Judge(2).standing, Standing::kShrink);
}

TEST_F(StandingTest, ARivalThatMayLiveComesBeforeAMissingReplica) {
  now_[1].reset();
  SealForAnother(0, 7);
  EXPECT_EQ(Judge(2).standing, Standing::kWait);
  before_ = now_;
  EXPECT_EQ(Judge(2).standing, Standing::kShrink);
  EXPECT_EQ(Judge(2).epoch, 8u);
  now_[0]->served_epoch = now_[0]->installed_epoch = 7;
  now_[0]->served_owner = now_[0]->sealed_owner;
  EXPECT_EQ(Judge(2).standing, Standing::kFenced);
}

// --- taking in again

class JoinerTest : public testing::Test {
 protected:
  JoinerTest() {
    own_.epoch = 4;
    own_.owner = *ParseUuid(kGroup);
    absent_ = {*ParseUuid("00000000-0000-4000-8000-000000000001"), "r1"};
    now_.node_id = FormatUuid(absent_.node);
    now_.group = kGroup;
    now_.device = "ready";
    now_.region_size = 1 << 20;
    now_.sealed_epoch = now_.installed_epoch = 3;
    now_.sealed_owner.assign(own_.owner.begin(), own_.owner.end());
    before_ = now_;
  }
  Status Check() const {
    return CheckJoiner(own_, *ParseUuid(kGroup), 1 << 20, absent_, before_, now_);
  }
  Configuration own_;
  Configuration::Replica absent_;
  control::HelloReplyT before_, now_;
};

TEST_F(JoinerTest, TheSameNodeAndAFreshOneMayJoin) {
  EXPECT_OK(Check());
  now_.node_id = kOther;
  EXPECT_OK(Check()) << "its first joining was cut short";
  now_.group = "";
  now_.sealed_epoch = now_.installed_epoch = 0;
  EXPECT_OK(Check());
  own_.replicas.push_back({*ParseUuid(kOther), "r2"});
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr("fresh"))) << "a member";
}

TEST_F(JoinerTest, ANodeOfAnotherGroupOrSizeMayNot) {
  now_.group = kOther;
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr(kOther)));
  now_.group = kGroup;
  now_.region_size = 2 << 20;
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr("hyperloopctl resize")));
  now_.region_size = 1 << 20;
  now_.device = "no RNIC";
  EXPECT_THAT(Check(), StatusIs(Code::kUnavailable));
}

TEST_F(JoinerTest, ANodeOfAnotherBranchMayNot) {
  own_.branch = {2, *ParseUuid(kOther)};
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument,
                                AllOf(HasSubstr("another history"), HasSubstr("--partial"),
                                      HasSubstr("set its pool aside (keep it"))));
  now_.branch_epoch = 2;
  now_.branch_owner = BranchOwner(own_.branch);
  EXPECT_OK(Check());
  own_.branch = {};
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr("another history")))
      << "it went on by itself";
  now_.installed_epoch = 0;
  EXPECT_OK(Check()) << "a fresh pool";
}

TEST_F(JoinerTest, ANodeThatARivalHoldsMayNot) {
  now_.sealed_owner.assign(16, 9);
  now_.sealed_epoch = 6;
  before_ = now_;
  EXPECT_OK(Check()) << "the rival is dead";
  now_.heartbeat = 7;
  EXPECT_THAT(Check(), StatusIs(Code::kUnavailable));
  now_.released = true;
  EXPECT_OK(Check());
  now_.served_epoch = now_.installed_epoch = 6;
  now_.served_owner = now_.sealed_owner;
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr("epoch 6")));
  now_.served_epoch = now_.installed_epoch = 3;
  now_.sealed_epoch = own_.epoch + kMostAhead + 1;
  EXPECT_THAT(Check(), StatusIs(Code::kInvalidArgument, HasSubstr("beyond")));
}

TEST_F(JoinerTest, ANewReplicaIsAddedOnlyToAWholeGroup) {
  const auto check = [&] {
    return CheckNewcomer(own_, *ParseUuid(kGroup), 1 << 20, {kNilUuid, "r1"}, before_, now_);
  };
  own_.replicas = {{*ParseUuid(kOther), "r0"}};
  EXPECT_OK(check());
  // It is refused before anything is sealed: no configuration could name it.
  const std::string long_address(kMaxReplicaAddress + 1, 'r');
  EXPECT_THAT(
      CheckNewcomer(own_, *ParseUuid(kGroup), 1 << 20, {kNilUuid, long_address}, before_, now_),
      StatusIs(Code::kInvalidArgument, HasSubstr("more than 79 bytes")));
  now_.group = kOther;
  EXPECT_THAT(check(), StatusIs(Code::kInvalidArgument, HasSubstr("set its pool aside (keep it")));
  now_.group = "";
  now_.sealed_epoch = now_.installed_epoch = 0;
  EXPECT_OK(check());
  own_.absent = {{*ParseUuid(kGroup), "r2"}};
  EXPECT_THAT(check(), StatusIs(Code::kUnavailable, HasSubstr("r2 is not")));
  own_.absent.clear();
  own_.replicas.push_back({*ParseUuid(now_.node_id), "r3"});
  EXPECT_THAT(check(),
              StatusIs(Code::kInvalidArgument,
                       AllOf(HasSubstr("at r3"), HasSubstr("set its pool aside (keep it"))));
  own_.replicas.assign(kMaxConfigurationReplicas, {*ParseUuid(kOther), "r0"});
  EXPECT_THAT(check(), StatusIs(Code::kInvalidArgument, HasSubstr("at most 8")));
}

// --- standing, once more

TEST_F(StandingTest, InstalledSuccessorFences) {
  SealForAnother(0, 5);
  now_[0]->served_epoch = now_[0]->installed_epoch = 5;
  now_[0]->served_owner = now_[0]->sealed_owner;
  now_[1].reset();
  EXPECT_EQ(Judge().standing, Standing::kFenced);
  EXPECT_THAT(Judge().why, HasSubstr("the other"));
  // The name that a replica keeps is that of the primary for which it is sealed.
  SealForAnother(0, 6);
  now_[0]->served_owner.assign(16, 8);
  EXPECT_EQ(Judge().standing, Standing::kFenced);
  EXPECT_THAT(Judge().why, testing::Not(HasSubstr("the other")));
}

// Its owner has written nothing. It is waited for while it may live, and overtaken afterwards.
TEST_F(StandingTest, InstalledSuccessorThatServedNobodyDoesNotFence) {
  SealForAnother(0, 5);
  now_[0]->installed_epoch = 5;
  EXPECT_EQ(Judge().standing, Standing::kWait);
  before_ = now_;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  EXPECT_EQ(Judge().epoch, 6u);
  now_[0]->served_epoch = 5;
  now_[0]->served_owner = now_[0]->sealed_owner;
  SealForAnother(1, 5);
  EXPECT_EQ(Judge().standing, Standing::kFenced);
}

// Whoever took the group has the promise of most members.
TEST_F(StandingTest, OneThatAloneTellsOfAnotherPrimaryFencesNobody) {
  SealForAnother(0, 5);
  now_[0]->served_epoch = now_[0]->installed_epoch = 5;
  now_[0]->served_owner = now_[0]->sealed_owner;
  const Judgement judged = Judge(2);
  EXPECT_EQ(judged.standing, Standing::kShrink);
  EXPECT_THAT(judged.missing, testing::ElementsAre(0));
  EXPECT_THAT(judged.why, HasSubstr("r0 alone says that it served another primary"));
  EXPECT_EQ(judged.epoch, 5u);
  EXPECT_EQ(Judge().standing, Standing::kWait) << "where each is needed";
  now_[2].reset();
  EXPECT_EQ(Judge(2).standing, Standing::kFenced) << "one of three is no majority";
}

// A primary that was stopped for long wakes up while its successor is installing itself anew.
TEST_F(StandingTest, UnservedEpochOfASuccessorThatServedBeforeFences) {
  SealForAnother(0, 7);
  now_[0]->installed_epoch = 7;
  now_[0]->served_owner = now_[0]->sealed_owner;
  now_[0]->served_epoch = 5;
  SealForAnother(1, 7);
  before_ = now_;
  EXPECT_EQ(Judge().standing, Standing::kFenced);
}

// A fresh pool, or one of another group, was started at the address, perhaps by mistake. What it
// says is not of the replica. The group goes on once the right one is back.
TEST_F(StandingTest, AnotherNodeAtAnAddressIsAMissingReplica) {
  now_[2]->node_id = kOther;
  for (const uint64_t served : {0, 1, 99}) {
    now_[2]->served_epoch = served;
    EXPECT_EQ(Judge().standing, Standing::kWait) << served;
    EXPECT_EQ(Judge(2).standing, Standing::kShrink) << served;
    EXPECT_THAT(Judge().missing, testing::ElementsAre(2u)) << served;
  }
  EXPECT_THAT(Judge().why, testing::HasSubstr(std::string("is now node ") + kOther));
}

// A seal that nobody installs is overtaken, however many members it reached, but not while its
// owner may live.
TEST_F(StandingTest, SealThatNobodyInstallsIsOvertaken) {
  SealForAnother(0, 7);
  EXPECT_EQ(Judge().standing, Standing::kWait);
  before_ = now_;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  EXPECT_EQ(Judge().epoch, 8u);
  EXPECT_THAT(Judge().why, HasSubstr("sealed for the other"));
  now_[0]->heartbeat = 5;
  EXPECT_EQ(Judge().standing, Standing::kWait);
  now_[0]->released = true;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  before_.clear();
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  SealForAnother(1, 9);  // a third one, unknown yet
  EXPECT_EQ(Judge().standing, Standing::kWait);
}

TEST_F(StandingTest, WhatAnEarlierAttemptOfItsOwnSealedIsItsOwn) {
  now_[0]->sealed_epoch = 6;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  EXPECT_EQ(Judge().epoch, 7u);
  EXPECT_EQ(Judge().why, "") << "there is no rival";
  now_[0]->served_epoch = now_[0]->installed_epoch = 6;
  now_[0]->served_owner = now_[0]->sealed_owner;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  SealForAnother(0, 7);  // who installed nothing
  before_ = now_;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  now_[0]->installed_epoch = 7;  // and then did, but served nobody
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
}

}  // namespace
}  // namespace hyperloop
