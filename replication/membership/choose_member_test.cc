// Which member's content a taking makes the group's, and who mends its damage.
#include "membership/choose_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

MemberContent ContentOf(const char* name, uint64_t installed, uint64_t last, uint64_t acked = 0,
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
  const std::vector<MemberContent> members = {ContentOf("r0", 1, 150), ContentOf("r1", 2, 100),
                                              ContentOf("r2", 2, 99)};
  const auto choice = ChooseMember(members, false);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 1u);
}

TEST(ChooseTest, LongestSoundLogWins) {
  const std::vector<MemberContent> members = {ContentOf("r0", 2, 120, 85, "record 90 fails"),
                                              ContentOf("r1", 2, 100, 80),
                                              ContentOf("r2", 2, 110, 90)};
  const auto choice = ChooseMember(members, false);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 2u);
  EXPECT_EQ(choice->known_acked, 90u);
}

// The member with less damage wins a tie, whatever its position.
TEST(ChooseTest, AmongEqualLogsTheUndamagedBytesWin) {
  std::vector<MemberContent> members = {ContentOf("r0", 2, 100, 80), ContentOf("r1", 2, 100, 80),
                                        ContentOf("r2", 2, 100, 80)};
  members[0].content.damage = {"extent 7"};
  members[2].content.damage = {"extent 1", "extent 2"};
  ASSERT_OK(ChooseMember(members, false));
  EXPECT_EQ(ChooseMember(members, false)->index, 1u);
  EXPECT_THAT(DescribeDamage(members),
              testing::ElementsAre("r0: extent 7", "r2: extent 1", "r2: extent 2"));
  // Its bytes are mended from the others; a shorter log could not be.
  members[0].content.last_seq = 101;
  EXPECT_EQ(ChooseMember(members, false)->index, 0u);
}

TEST(ChooseTest, WhatADamagedMemberKnowsToBeAcknowledgedMustBeReached) {
  std::vector<MemberContent> members = {ContentOf("r0", 2, 0, 100, "record 90 fails"),
                                        ContentOf("r1", 2, 99, 80)};
  const Status refused = ChooseMember(members, false).status();
  EXPECT_THAT(refused, StatusIs(Code::kCorruption));
  EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("record 100 was acknowledged"),
                                                HasSubstr("r1"), HasSubstr("r0: record 90 fails")));
  members[1].content.last_seq = 100;
  ASSERT_OK(ChooseMember(members, false));
  EXPECT_EQ(ChooseMember(members, false)->index, 1u);
  EXPECT_EQ(ChooseMember(members, false)->known_acked, 100u);
  // The log must also reach records that a member of an older epoch knows to be acknowledged.
  members[0] = ContentOf("r0", 1, 110, 105);
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption));
}

// Whoever installed the newest epoch had made all its members equal before, and wrote nothing.
TEST(ChooseTest, AnUnservedEpochWithoutASoundLogGivesWayToTheOneBefore) {
  std::vector<MemberContent> members = {ContentOf("r0", 3, 0, 0, "damaged"),
                                        ContentOf("r1", 2, 70, 60), ContentOf("r2", 1, 90, 60)};
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption));
  const auto choice = ChooseMember(members, true);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 1u);
  members[0].content.acked_seq = 71;
  EXPECT_THAT(ChooseMember(members, true), StatusIs(Code::kCorruption));
  members[0] = ContentOf("r0", 3, 65, 60);
  EXPECT_EQ(ChooseMember(members, true)->index, 0u);
  // A member that was left out holds a tail that was never acknowledged.
  members = {ContentOf("r0", 3, 0, 0, "damaged"), ContentOf("r1", 1, 70, 60),
             ContentOf("r2", 1, 90, 60)};
  members[2].joins = true;
  EXPECT_EQ(ChooseMember(members, true)->index, 1u);
  members[1].joins = true;
  EXPECT_THAT(ChooseMember(members, true), StatusIs(Code::kCorruption));
  const std::vector<MemberContent> lone = {ContentOf("r0", 3, 0, 0, "damaged"),
                                           ContentOf("r1", 0, 0)};
  EXPECT_THAT(ChooseMember(lone, true), StatusIs(Code::kCorruption));
}

// The last record of r0's log is damaged. The taking that installed epoch 3 there, and not at r1,
// had made both logs equal before.
TEST(ChooseTest, AnUnservedEpochGivesWayToALongerLogThatIsKnownToBeKept) {
  std::vector<MemberContent> members = {ContentOf("r0", 3, 82, 82), ContentOf("r1", 2, 83, 83)};
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption));
  const auto choice = ChooseMember(members, true);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->index, 1u);
  EXPECT_EQ(choice->known_acked, 83u);
  // It must reach all that anybody knows to be acknowledged, be sound, and not join.
  members.push_back(ContentOf("r2", 1, 70, 70));
  members[2].content.acked_seq = 84;
  EXPECT_THAT(ChooseMember(members, true), StatusIs(Code::kCorruption));
  members.pop_back();
  members[1].content.log_error = "damaged";
  EXPECT_THAT(ChooseMember(members, true), StatusIs(Code::kCorruption));
  members[1].content.log_error.clear();
  members[1].joins = true;
  EXPECT_THAT(ChooseMember(members, true), StatusIs(Code::kCorruption));
}

TEST(ChooseTest, SourcesThatAreEqualComeFirst) {
  std::vector<MemberContent> members = {ContentOf("r0", 1, 100), ContentOf("r1", 2, 100),
                                        ContentOf("r2", 2, 100), ContentOf("r3", 2, 100)};
  members[1].content.executed_seq = 40;
  members[2].content.executed_seq = members[3].content.executed_seq = 50;
  const SourceOrder order = SourcesFor({3, 0}, members);
  EXPECT_EQ(order.indices, (std::vector<size_t>{2, 3, 0, 1}));
  EXPECT_EQ(order.equal, 2u);
}

// What they executed may not be in the chosen log.
TEST(ChooseTest, LongerAndDamagedLogsAreCut) {
  const std::vector<MemberContent> members = {
      ContentOf("r0", 2, 100), ContentOf("r1", 1, 101), ContentOf("r2", 1, 99),
      ContentOf("r3", 2, 0, 0, "damaged"), ContentOf("r4", 2, 100)};
  EXPECT_EQ(CutLogs({0, 0}, members), (std::vector<bool>{false, true, false, true, false}));
}

// Where one lies, or is damaged, the others can go on without it.
TEST(ChooseTest, WhoKnowsOfARecordThatNobodyHasIsNamed) {
  const std::vector<MemberContent> members = {ContentOf("r0", 1, 90), ContentOf("r1", 1, 90, 100),
                                              ContentOf("r2", 1, 90, 90)};
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption, HasSubstr("as r1 says")));
}

TEST(ChooseTest, AcknowledgedRecordThatNobodyHasIsCorruption) {
  std::vector<MemberContent> members = {ContentOf("r0", 2, 80, 95)};
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption));
  members = {ContentOf("r0", 2, 0, 0, "damaged"), ContentOf("r1", 1, 70)};
  EXPECT_THAT(ChooseMember(members, false), StatusIs(Code::kCorruption, HasSubstr("r0: damaged")));
}

}  // namespace
}  // namespace hyperloop
