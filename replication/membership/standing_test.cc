#include "membership/standing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "membership/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

TEST(NextFailure, StopsWritesWhereTooFewWouldBeLeft) {
  const FailureRules rules{true, 0};
  EXPECT_EQ(NextFailure({3, 0, 0, 3, false}, rules), "");
  EXPECT_THAT(NextFailure({3, 0, 0, 3, false}, {}), HasSubstr("on_replica_failure=block"));
  EXPECT_THAT(NextFailure({3, 0, 0, 3, false}, {true, 3}), HasSubstr("3 are needed"));
  EXPECT_THAT(NextFailure({2, 0, 0, 2, false}, rules), HasSubstr("2 of 2 replicas"));
  EXPECT_THAT(NextFailure({2, 1, 0, 2, false}, rules), HasSubstr("2 of 3 replicas"));
  EXPECT_THAT(NextFailure({3, 0, 1, 2, false}, rules), HasSubstr("2 of 3 replicas"));
  EXPECT_EQ(NextFailure({4, 1, 0, 4, false}, rules), "");
  EXPECT_EQ(NextFailure({5, 0, 1, 4, false}, rules), "");
  EXPECT_THAT(NextFailure({5, 0, 2, 3, false}, rules), HasSubstr("3 are needed"));
  EXPECT_NE(NextFailure({1, 0, 0, 1, false}, rules), "");
}

// After it, flushes would wait for a replica that is being filled.
TEST(NextFailure, StopsWritesWhereFewerThanHalfWouldHoldTheFiles) {
  const FailureRules rules{true, 0};
  EXPECT_THAT(NextFailure({3, 0, 0, 2, true}, rules), HasSubstr("2 of 3 replicas hold"));
  EXPECT_EQ(NextFailure({5, 0, 0, 4, true}, rules), "");
  EXPECT_NE(NextFailure({5, 0, 0, 3, true}, rules), "");
  EXPECT_EQ(NextFailure({4, 0, 0, 3, true}, rules), "") << "two of four are half";
  EXPECT_NE(NextFailure({4, 0, 0, 2, true}, rules), "");
}

TEST(LeastReplicas, IsNeverLessThanAMajority) {
  Configuration three;
  three.replicas.resize(3);
  EXPECT_EQ(LeastReplicas(three, {}), SIZE_MAX);
  EXPECT_EQ(LeastReplicas(three, {true, 0}), 2u);
  EXPECT_EQ(LeastReplicas(three, {true, 1}), 2u);
  EXPECT_EQ(LeastReplicas(three, {true, 3}), 3u);
  three.replicas.resize(2);
  three.absent.resize(1);
  EXPECT_EQ(LeastReplicas(three, {true, 0}), 2u) << "two cannot shrink";
  EXPECT_EQ(LeastReplicas(three, {true, 1}), 2u);
  Configuration five;
  five.replicas.resize(3);
  five.absent.resize(2);
  EXPECT_EQ(LeastReplicas(five, {true, 0}), 3u);
  EXPECT_EQ(LeastReplicas(five, {true, 2}), 3u) << "any two sets share a replica";
  EXPECT_EQ(LeastReplicas(five, {true, 4}), 4u);
}

// --- what two looks show

TEST_F(PlanTest, AMemberMovesWhenAnotherPrimarySealsOrInstallsIt) {
  AllOfGroup(1);
  auto later = members_;
  later[0].hello.heartbeat = 5;  // its owner writes, and changes no promise
  EXPECT_EQ(MovedMember(members_, later), nullptr);
  later[1].hello.sealed_epoch = 2;
  ASSERT_NE(MovedMember(members_, later), nullptr);
  EXPECT_EQ(MovedMember(members_, later)->name, "replica r1");
  later[1].hello.sealed_epoch = members_[1].hello.sealed_epoch;
  later[2].hello.installed_epoch = 2;
  ASSERT_NE(MovedMember(members_, later), nullptr);
  EXPECT_EQ(MovedMember(members_, later)->name, "replica r2");
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

}  // namespace
}  // namespace hyperloop
