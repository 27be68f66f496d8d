#include "primary/take_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

const char kGroup[] = "11111111-1111-4111-8111-111111111111";
const char kOther[] = "22222222-2222-4222-8222-222222222222";

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    for (int i = 0; i < 3; ++i) {
      MemberLook look;
      look.name = "replica r" + std::to_string(i);
      look.address = "10.0.0." + std::to_string(i) + ":7000";
      look.hello.node_id = NodeId(i);
      look.hello.device = "ready";
      look.hello.region_size = 1 << 20;
      members_.push_back(look);
    }
  }
  static std::string NodeId(int i) {
    return "00000000-0000-4000-8000-00000000000" + std::to_string(i);
  }
  void AllOfGroup(uint64_t epoch) {
    for (MemberLook& each : members_) {
      each.hello.group = kGroup;
      each.hello.sealed_epoch = each.hello.installed_epoch = epoch;
      each.hello.installed_nodes = {NodeId(0), NodeId(1), NodeId(2)};
      each.hello.installed_replicas = {"10.0.0.0:7000", "10.0.0.1:7000", "10.0.0.2:7000"};
    }
  }
  Status Refusal() { return PlanTake(members_, 0).status(); }
  std::vector<MemberLook> members_;
};

TEST_F(PlanTest, FreshReplicasAreFormatted) {
  const auto plan = PlanTake(members_, 0);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 1u);
  EXPECT_NE(plan->group, kNilUuid);
}

TEST_F(PlanTest, EpochExceedsEverySealedOne) {
  AllOfGroup(4);
  members_[1].hello.sealed_epoch = 9;  // a candidate that lost elsewhere
  const auto plan = PlanTake(members_, 0);
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->format);
  EXPECT_EQ(plan->epoch, 10u);
  EXPECT_EQ(FormatUuid(plan->group), kGroup);
}

TEST_F(PlanTest, FirstTakingThatCrashedIsBegunAnew) {
  members_[0].hello.group = kGroup;
  members_[0].hello.sealed_epoch = 1;
  members_[1].hello.group = kOther;
  members_[1].hello.sealed_epoch = 2;
  const auto plan = PlanTake(members_, 0);
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 3u);
}

TEST_F(PlanTest, FirstTakingCutBetweenInstallsGoesOn) {
  AllOfGroup(1);
  members_[2].hello.installed_epoch = 0;  // sealed for the group, not installed
  EXPECT_OK(PlanTake(members_, 0));
}

TEST_F(PlanTest, FreshAmongFormattedIsNamed) {
  AllOfGroup(3);
  members_[2].hello.group = "";
  members_[2].hello.sealed_epoch = members_[2].hello.installed_epoch = 0;
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r2 is fresh"));
}

TEST_F(PlanTest, ForeignGroupIsNamed) {
  AllOfGroup(3);
  members_[1].hello.group = kOther;
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refusal().message(), testing::AllOf(HasSubstr("replica r1"), HasSubstr(kOther)));
}

// The recorded configuration decides, not the caller's list.
TEST_F(PlanTest, APartOfTheRecordedReplicasIsRefused) {
  AllOfGroup(5);
  for (const std::vector<size_t>& listed :
       {std::vector<size_t>{0}, {1}, {2}, {0, 1}, {1, 2}, {2, 0}}) {
    std::vector<MemberLook> part;
    for (const size_t i : listed) part.push_back(members_[i]);
    const Status refused = PlanTake(part, 0).status();
    EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(refused.message(),
                testing::AllOf(HasSubstr("10.0.0.0:7000, 10.0.0.1:7000, 10.0.0.2:7000"),
                               HasSubstr("epoch 5"), HasSubstr("list all of them")));
  }
  std::swap(members_[0], members_[2]);  // another order of the same replicas is a chain, too
  EXPECT_OK(PlanTake(members_, 0));
}

TEST_F(PlanTest, TheNewestConfigurationCounts) {
  AllOfGroup(5);
  // A configuration that r2 never received left it out.
  for (const size_t i : {0, 1}) {
    members_[i].hello.installed_epoch = 6;
    members_[i].hello.installed_nodes.pop_back();
    members_[i].hello.installed_replicas.pop_back();
  }
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r2"));
  members_.pop_back();
  EXPECT_OK(PlanTake(members_, 0));
}

TEST_F(PlanTest, WhatIsInstalledIsTheMembersAsListed) {
  AllOfGroup(5);
  const auto plan = PlanTake(members_, 0);
  ASSERT_OK(plan);
  ASSERT_EQ(plan->configuration.replicas.size(), 3u);
  EXPECT_EQ(FormatUuid(plan->configuration.replicas[1].node), NodeId(1));
  EXPECT_EQ(plan->configuration.replicas[1].address, "10.0.0.1:7000");
}

TEST_F(PlanTest, TheLogsOwnConfigurationMustAgree) {
  AllOfGroup(5);
  const auto plan = PlanTake(members_, 0);
  ASSERT_OK(plan);
  Configuration logged = plan->configuration;
  logged.epoch = 5;
  EXPECT_OK(CheckLogged(*plan, logged));
  std::swap(logged.replicas[0], logged.replicas[1]);
  EXPECT_OK(CheckLogged(*plan, logged));
  logged.replicas.push_back({*ParseUuid(kOther), "10.0.0.9:7000"});
  EXPECT_THAT(CheckLogged(*plan, logged), StatusIs(Code::kCorruption));
  EXPECT_THAT(CheckLogged(*plan, logged).message(), HasSubstr("10.0.0.9:7000"));
  logged.epoch = 4;  // the configuration of epoch 5 is not in the log
  EXPECT_OK(CheckLogged(*plan, logged));
}

TEST_F(PlanTest, SameReplicaTwiceIsNamed) {
  members_[2].hello.node_id = members_[0].hello.node_id;
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Refusal().message(),
              testing::AllOf(HasSubstr("replica r2"), HasSubstr("replica r0")));
}

TEST_F(PlanTest, SizesAreCompared) {
  EXPECT_THAT(PlanTake(members_, 2 << 20), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(PlanTake(members_, 1 << 20));
  members_[1].hello.region_size = 4096;
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r1 has a region of 4096 B"));
}

TEST_F(PlanTest, ReplicaWithoutRnicIsUnavailable) {
  members_[1].hello.device = "the daemon is gone";
  EXPECT_THAT(Refusal(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r1"));
}

TEST_F(PlanTest, OwnerLivesOnlyWhileItsWordMoves) {
  AllOfGroup(1);
  auto later = members_;
  EXPECT_EQ(LivingOwner(members_, later), nullptr);
  later[2].hello.heartbeat = 5;
  ASSERT_NE(LivingOwner(members_, later), nullptr);
  EXPECT_EQ(LivingOwner(members_, later)->name, "replica r2");
  later[2].hello.released = true;
  EXPECT_EQ(LivingOwner(members_, later), nullptr);
  EXPECT_FALSE(NobodyToWatch(members_));
  for (MemberLook& each : members_) each.hello.released = true;
  EXPECT_TRUE(NobodyToWatch(members_));
}

// --- standing of a primary whose group stopped answering

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
      hello.sealed_epoch = hello.installed_epoch = 4;
      hello.sealed_owner.assign(own_.owner.begin(), own_.owner.end());
      now_.emplace_back(hello);
    }
  }
  void SealForAnother(size_t i, uint64_t epoch) {
    now_[i]->sealed_epoch = epoch;
    now_[i]->sealed_owner.assign(16, 9);
    now_[i]->sealed_owner_name = "the other";
  }
  Judgement Judge() { return JudgeStanding(own_, before_, now_); }
  Configuration own_;
  std::vector<std::optional<control::HelloReplyT>> before_, now_;
};

TEST_F(StandingTest, OwnerEverywhereGoesOn) { EXPECT_EQ(Judge().standing, Standing::kOwner); }

TEST_F(StandingTest, OneThatDoesNotAnswerIsWaitedFor) {
  now_[1].reset();
  EXPECT_EQ(Judge().standing, Standing::kWait);
  EXPECT_THAT(Judge().why, HasSubstr("r1"));
}

TEST_F(StandingTest, InstalledSuccessorFences) {
  SealForAnother(0, 5);
  now_[0]->installed_epoch = 5;
  now_[1].reset();
  EXPECT_EQ(Judge().standing, Standing::kFenced);
  EXPECT_THAT(Judge().why, HasSubstr("the other"));
}

TEST_F(StandingTest, AnotherNodeAtAnAddressIsAnotherConfiguration) {
  now_[2]->node_id = kOther;
  EXPECT_EQ(Judge().standing, Standing::kFenced);
}

// A seal that nobody installs is overtaken, however many members it reached, but not while its
// owner may live.
TEST_F(StandingTest, SealThatNobodyInstallsIsOvertaken) {
  SealForAnother(0, 7);
  EXPECT_EQ(Judge().standing, Standing::kWait);
  before_ = now_;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
  EXPECT_EQ(Judge().epoch, 8u);
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
  now_[0]->installed_epoch = 6;
  EXPECT_EQ(Judge().standing, Standing::kReclaim);
}

// --- pairing

class PairingTest : public testing::Test {
 protected:
  Status Check(size_t files) {
    return CheckPairing(request_, words_, *ParseUuid(kGroup), binding_, files);
  }
  TakeRequest request_{"/db", true, {}};
  Binding binding_{*ParseUuid(kOther), "/old"};
  StoreOptions words_;
};

TEST_F(PairingTest, NewDirectoryAndEmptyGroupMayPair) { EXPECT_OK(Check(0)); }

TEST_F(PairingTest, EmptyDirectoryDoesNotSwallowAGroup) {
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5).message(), HasSubstr("restore=true and rebind=true"));
  // `restore` fills a directory, but does not take the group from another one.
  words_.restore = true;
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5).message(), testing::AllOf(HasSubstr("/old"), HasSubstr("rebind=true")));
  words_.rebind = true;
  EXPECT_OK(Check(5));
  words_.restore = false;
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

// A mistaken rebinding is undone by `rebind` in the former directory.
TEST_F(PairingTest, TheFormerDirectoryComesBackWithAWord) {
  request_.directory_empty = false;
  request_.pairing = {kGroup, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5).message(), HasSubstr("rebind=true"));
  words_.rebind = true;
  EXPECT_OK(Check(5));
  request_.pairing = {kOther, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

TEST_F(PairingTest, KnownPairIsAcceptedWhateverIsLeftOfTheDirectory) {
  request_.pairing = {kGroup, kOther};
  EXPECT_OK(Check(5));
  request_.directory_empty = false;
  EXPECT_OK(Check(5));
  EXPECT_OK(Check(0));
}

TEST_F(PairingTest, ForeignPairsAreRefused) {
  words_.restore = true;
  request_.pairing = {kOther, kOther};
  EXPECT_THAT(Check(0), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  request_.pairing = {kGroup, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

TEST_F(PairingTest, DatabaseFromOutsideIsRefused) {
  request_.directory_empty = false;
  EXPECT_THAT(Check(0), StatusIs(Code::kInvalidArgument));
  words_.restore = true;
  EXPECT_THAT(Check(3), StatusIs(Code::kInvalidArgument));
}

// --- choosing

MemberContent Member(const char* name, uint64_t installed, uint64_t last, uint64_t acked = 0,
                     const char* error = "") {
  MemberContent member{name, {}};
  member.content.installed_epoch = installed;
  member.content.last_seq = last;
  member.content.acked_seq = acked;
  member.content.log_error = error;
  return member;
}

TEST(ChooseTest, NewestInstalledEpochBeatsALongerTail) {
  // r0 kept an unacknowledged tail of an epoch that r1 and r2 have left behind.
  const std::vector<MemberContent> members = {Member("r0", 1, 150), Member("r1", 2, 100),
                                              Member("r2", 2, 99)};
  const auto choice = ChooseMember(members);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 1u);
}

TEST(ChooseTest, LongestSoundLogWins) {
  const std::vector<MemberContent> members = {Member("r0", 2, 120, 85, "record 90 fails"),
                                              Member("r1", 2, 100, 80), Member("r2", 2, 110, 90)};
  const auto choice = ChooseMember(members);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 2u);
  EXPECT_EQ(choice->known_acked, 90u);
}

// The member with less damage wins a tie, whatever its position.
TEST(ChooseTest, AmongEqualLogsTheUndamagedBytesWin) {
  std::vector<MemberContent> members = {Member("r0", 2, 100, 80), Member("r1", 2, 100, 80),
                                        Member("r2", 2, 100, 80)};
  members[0].content.damage = {"extent 7"};
  members[2].content.damage = {"extent 1", "extent 2"};
  ASSERT_OK(ChooseMember(members));
  EXPECT_EQ(ChooseMember(members)->index, 1u);
  EXPECT_THAT(DescribeDamage(members),
              testing::ElementsAre("r0: extent 7", "r2: extent 1", "r2: extent 2"));
  // Its bytes are mended from the others; a shorter log could not be.
  members[0].content.last_seq = 101;
  EXPECT_EQ(ChooseMember(members)->index, 0u);
}

TEST(ChooseTest, WhatADamagedMemberKnowsToBeAcknowledgedMustBeReached) {
  std::vector<MemberContent> members = {Member("r0", 2, 0, 100, "record 90 fails"),
                                        Member("r1", 2, 99, 80)};
  const Status refused = ChooseMember(members).status();
  EXPECT_THAT(refused, StatusIs(Code::kCorruption));
  EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("record 100 was acknowledged"),
                                                HasSubstr("r1"), HasSubstr("r0: record 90 fails")));
  members[1].content.last_seq = 100;
  ASSERT_OK(ChooseMember(members));
  EXPECT_EQ(ChooseMember(members)->index, 1u);
  EXPECT_EQ(ChooseMember(members)->known_acked, 100u);
  // The log must also reach records that a member of an older epoch knows to be acknowledged.
  members[0] = Member("r0", 1, 110, 105);
  EXPECT_THAT(ChooseMember(members), StatusIs(Code::kCorruption));
}

TEST(ChooseTest, AcknowledgedRecordThatNobodyHasIsCorruption) {
  std::vector<MemberContent> members = {Member("r0", 2, 80, 95)};
  EXPECT_THAT(ChooseMember(members), StatusIs(Code::kCorruption));
  members = {Member("r0", 2, 0, 0, "damaged"), Member("r1", 1, 70)};
  EXPECT_THAT(ChooseMember(members), StatusIs(Code::kCorruption));
  EXPECT_THAT(ChooseMember(members).status().message(), HasSubstr("r0: damaged"));
}

}  // namespace
}  // namespace hyperloop
