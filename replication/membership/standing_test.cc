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

// --- who is of another history

TEST_F(PlanTest, ARivalHasAnEpochOfAnotherOwnerThatIsKnown) {
  AllOfGroup(1);
  control::HelloReplyT& hello = members_[0].hello;
  const auto installed = [&](uint64_t epoch, const Uuid& owner) {
    hello.installed_epoch = hello.served_epoch = epoch;
    hello.served_owner.assign(owner.begin(), owner.end());
  };
  const Uuid former{1}, mine{2}, other{3};
  const Configuration own{9, mine, {}};
  const KnownOwners known{{4, former, {}}, 6};
  for (const uint64_t epoch : {6u, 8u, 9u}) {
    installed(epoch, mine);
    EXPECT_FALSE(IsOfRival(hello, own, known)) << epoch;
    installed(epoch, other);
    EXPECT_TRUE(IsOfRival(hello, own, known)) << epoch;
    EXPECT_EQ(IsOfRival(hello, own), epoch == 9) << epoch;
  }
  installed(4, former);
  EXPECT_FALSE(IsOfRival(hello, own, known));
  installed(4, other);
  EXPECT_TRUE(IsOfRival(hello, own, known));
  for (const uint64_t epoch : {3u, 5u, 10u}) {
    installed(epoch, other);
    EXPECT_FALSE(IsOfRival(hello, own, known)) << epoch << ": whose it was is not known";
  }
  installed(8, other);
  hello.served_epoch = 7;
  hello.sealed_epoch = 12;
  EXPECT_FALSE(IsOfRival(hello, own, known)) << "it does not tell its owner";
}

TEST_F(PlanTest, OneThatCountsAndHasInstalledLessWentBack) {
  AllOfGroup(5);
  Configuration own = ConfigurationOf(members_[0]).value();
  EXPECT_FALSE(WentBack(members_[1].hello, own));
  members_[1].hello.installed_epoch = 6;  // in an attempt that was cut short
  EXPECT_FALSE(WentBack(members_[1].hello, own));
  members_[1].hello.installed_epoch = 4;
  EXPECT_TRUE(WentBack(members_[1].hello, own));
  own.absent.push_back(own.replicas[1]);
  own.replicas.erase(own.replicas.begin() + 1);
  EXPECT_FALSE(WentBack(members_[1].hello, own)) << "it is absent, and missed that one";
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
