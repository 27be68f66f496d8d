#include "primary/take_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
      look.hello.node_id = "node" + std::to_string(i);
      look.hello.device = "ready";
      look.hello.region_size = 1 << 20;
      members_.push_back(look);
    }
  }
  void AllOfGroup(uint64_t epoch) {
    for (MemberLook& each : members_) {
      each.hello.group = kGroup;
      each.hello.sealed_epoch = each.hello.installed_epoch = epoch;
    }
  }
  Status Refusal() { return PlanTake(members_, 0).status(); }
  std::vector<MemberLook> members_;
};

TEST_F(PlanTest, FreshReplicasAreFormatted) {
  const auto plan = PlanTake(members_, 0);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 1u);
  EXPECT_NE(plan->group, kNilUuid);
}

TEST_F(PlanTest, EpochExceedsEverySealedOne) {
  AllOfGroup(4);
  members_[1].hello.sealed_epoch = 9;  // a candidate that lost elsewhere
  const auto plan = PlanTake(members_, 0);
  ASSERT_TRUE(plan.ok());
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
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 3u);
}

TEST_F(PlanTest, FirstTakingCutBetweenInstallsGoesOn) {
  AllOfGroup(1);
  members_[2].hello.installed_epoch = 0;  // sealed for the group, not installed
  EXPECT_TRUE(PlanTake(members_, 0).ok());
}

TEST_F(PlanTest, FreshAmongFormattedIsNamed) {
  AllOfGroup(3);
  members_[2].hello.group = "";
  members_[2].hello.sealed_epoch = members_[2].hello.installed_epoch = 0;
  EXPECT_EQ(Refusal().code(), Code::kInvalidArgument);
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r2 is fresh"));
}

TEST_F(PlanTest, ForeignGroupIsNamed) {
  AllOfGroup(3);
  members_[1].hello.group = kOther;
  EXPECT_EQ(Refusal().code(), Code::kInvalidArgument);
  EXPECT_THAT(Refusal().message(), testing::AllOf(HasSubstr("replica r1"), HasSubstr(kOther)));
}

TEST_F(PlanTest, SameReplicaTwiceIsNamed) {
  members_[2].hello.node_id = members_[0].hello.node_id;
  EXPECT_EQ(Refusal().code(), Code::kInvalidArgument);
  EXPECT_THAT(Refusal().message(),
              testing::AllOf(HasSubstr("replica r2"), HasSubstr("replica r0")));
}

TEST_F(PlanTest, SizesAreCompared) {
  EXPECT_EQ(PlanTake(members_, 2 << 20).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(PlanTake(members_, 1 << 20).ok());
  members_[1].hello.region_size = 4096;
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r1 has a region of 4096 B"));
}

TEST_F(PlanTest, ReplicaWithoutRnicIsUnavailable) {
  members_[1].hello.device = "the daemon is gone";
  EXPECT_EQ(Refusal().code(), Code::kUnavailable);
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

// --- pairing

class PairingTest : public testing::Test {
 protected:
  Status Check(size_t files) {
    return CheckPairing(request_, restore_, *ParseUuid(kGroup), binding_, files);
  }
  TakeRequest request_{"/db", true, {}};
  Binding binding_{*ParseUuid(kOther), "/old"};
  bool restore_ = false;
};

TEST_F(PairingTest, NewDirectoryAndEmptyGroupMayPair) { EXPECT_TRUE(Check(0).ok()); }

TEST_F(PairingTest, EmptyDirectoryDoesNotSwallowAGroup) {
  EXPECT_EQ(Check(5).code(), Code::kInvalidArgument);
  EXPECT_THAT(Check(5).message(), HasSubstr("restore=true"));
  restore_ = true;
  EXPECT_TRUE(Check(5).ok());
}

TEST_F(PairingTest, KnownPairIsAcceptedWhateverIsLeftOfTheDirectory) {
  request_.pairing = {kGroup, kOther};
  EXPECT_TRUE(Check(5).ok());
  request_.directory_empty = false;
  EXPECT_TRUE(Check(5).ok());
  EXPECT_TRUE(Check(0).ok());
}

TEST_F(PairingTest, ForeignPairsAreRefused) {
  restore_ = true;
  request_.pairing = {kOther, kOther};
  EXPECT_EQ(Check(0).code(), Code::kInvalidArgument);
  EXPECT_EQ(Check(5).code(), Code::kInvalidArgument);
  request_.pairing = {kGroup, kGroup};
  EXPECT_EQ(Check(5).code(), Code::kInvalidArgument);
}

TEST_F(PairingTest, DatabaseFromOutsideIsRefused) {
  request_.directory_empty = false;
  EXPECT_EQ(Check(0).code(), Code::kInvalidArgument);
  restore_ = true;
  EXPECT_EQ(Check(3).code(), Code::kInvalidArgument);
}

// --- choosing

SealedMember Member(const char* name, uint64_t installed, uint64_t last, uint64_t acked = 0,
                    const char* error = "") {
  SealedMember member{name, {}};
  member.reply.installed_epoch = installed;
  member.reply.last_seq = last;
  member.reply.acked_seq = acked;
  member.reply.log_error = error;
  return member;
}

TEST(ChooseTest, NewestInstalledEpochBeatsALongerTail) {
  // r0 kept an unacknowledged tail of an epoch that r1 and r2 have left behind.
  const std::vector<SealedMember> members = {Member("r0", 1, 150), Member("r1", 2, 100),
                                             Member("r2", 2, 99)};
  const auto choice = ChooseMember(members);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->index, 1u);
}

TEST(ChooseTest, LongestSoundLogWins) {
  const std::vector<SealedMember> members = {Member("r0", 2, 120, 85, "record 90 fails"),
                                             Member("r1", 2, 100, 80), Member("r2", 2, 110, 90)};
  const auto choice = ChooseMember(members);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->index, 2u);
  EXPECT_EQ(choice->known_acked, 90u);
}

TEST(ChooseTest, WhatADamagedMemberKnowsToBeAcknowledgedMustBeReached) {
  std::vector<SealedMember> members = {Member("r0", 2, 0, 100, "record 90 fails"),
                                       Member("r1", 2, 99, 80)};
  const Status refused = ChooseMember(members).status();
  EXPECT_EQ(refused.code(), Code::kCorruption);
  EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("record 100 was acknowledged"),
                                                HasSubstr("r1"), HasSubstr("r0: record 90 fails")));
  members[1].reply.last_seq = 100;
  ASSERT_TRUE(ChooseMember(members).ok());
  EXPECT_EQ(ChooseMember(members)->index, 1u);
  EXPECT_EQ(ChooseMember(members)->known_acked, 100u);
  // So must what a member knows that missed the newest epoch.
  members[0] = Member("r0", 1, 110, 105);
  EXPECT_EQ(ChooseMember(members).status().code(), Code::kCorruption);
}

TEST(ChooseTest, AcknowledgedRecordThatNobodyHasIsCorruption) {
  std::vector<SealedMember> members = {Member("r0", 2, 80, 95)};
  EXPECT_EQ(ChooseMember(members).status().code(), Code::kCorruption);
  members = {Member("r0", 2, 0, 0, "damaged"), Member("r1", 1, 70)};
  EXPECT_EQ(ChooseMember(members).status().code(), Code::kCorruption);
  EXPECT_THAT(ChooseMember(members).status().message(), HasSubstr("r0: damaged"));
}

}  // namespace
}  // namespace hyperloop
