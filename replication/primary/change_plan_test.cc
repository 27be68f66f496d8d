// Which replicas a group may have after a taking that adds one or removes one.
#include <algorithm>

#include "primary/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const char kAdded[] = "10.0.0.3:7000";
const ReplicaChange kAdd{kAdded, ""};
const ReplicaChange kRemoveLast{"", "10.0.0.2:7000"};
const FailureRules kContinue{true, 0};

class ChangePlanTest : public PlanTest {
 protected:
  ChangePlanTest() { AllOfGroup(5); }
  void ListAnother() {
    MemberLook added = members_[0];
    added.name = "replica added";
    added.address = kAdded;
    added.hello = {};
    added.hello.node_id = NodeId(3);
    added.hello.device = "ready";
    added.hello.region_size = 1 << 20;
    members_.push_back(added);
  }
  // The replica died, and is listed.
  std::vector<MissingReplica> Lose(size_t i) {
    std::vector<MissingReplica> missing{{members_[i].name, members_[i].address, "dead"}};
    members_.erase(members_.begin() + static_cast<ptrdiff_t>(i));
    return missing;
  }
  static void SetConfiguration(MemberLook& member, uint64_t epoch, const std::vector<int>& nodes) {
    member.hello.group = kGroup;
    member.hello.installed_epoch = member.hello.sealed_epoch = epoch;
    member.hello.installed_nodes.clear();
    member.hello.installed_replicas.clear();
    for (const int node : nodes) {
      member.hello.installed_nodes.push_back(NodeId(node));
      member.hello.installed_replicas.push_back("10.0.0." + std::to_string(node) + ":7000");
    }
  }
};

TEST_F(ChangePlanTest, AFreshReplicaJoinsIfItIsNamed) {
  ListAnother();
  EXPECT_THAT(Refusal(),
              StatusIs(Code::kInvalidArgument, HasSubstr("add_replica=" + std::string(kAdded))));
  const auto plan = PlanTake(members_, {}, 0, {}, kAdd);
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->format);
  EXPECT_EQ(plan->configuration.replicas.size(), 4u);
  EXPECT_THAT(plan->joiners, ElementsAre(3));
  EXPECT_THAT(plan->change, HasSubstr("replica added is added"));
}

TEST_F(ChangePlanTest, WhatTheGroupHasAlreadyIsNotAddedAgain) {
  const auto plan = PlanTake(members_, {}, 0, {}, {"10.0.0.2:7000", ""});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->joiners, ElementsAre());
  EXPECT_EQ(plan->change, "");
  // It is still left out, as without the word, where it may be.
  const auto missing = Lose(2);
  const auto without = PlanTake(members_, missing, 0, kContinue, {"10.0.0.2:7000", ""});
  ASSERT_OK(without);
  EXPECT_EQ(without->configuration.absent.size(), 1u);
}

TEST_F(ChangePlanTest, OnlyTheNamedReplicaJoins) {
  ListAnother();
  EXPECT_THAT(PlanTake(members_, {}, 0, {}, {"10.0.0.4:7000", ""}),
              StatusIs(Code::kInvalidArgument, HasSubstr("replica added")));
  members_[3].hello.installed_epoch = members_[3].hello.sealed_epoch = 2;
  members_[3].hello.group = kOther;
  EXPECT_THAT(PlanTake(members_, {}, 0, {}, kAdd),
              StatusIs(Code::kInvalidArgument, HasSubstr(kOther)));
}

TEST_F(ChangePlanTest, AReplicaLeavesIfItIsNamed) {
  members_.pop_back();
  EXPECT_THAT(Refusal(),
              StatusIs(Code::kInvalidArgument, HasSubstr("remove_replica=10.0.0.2:7000")));
  const auto plan = PlanTake(members_, {}, 0, {}, kRemoveLast);
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.replicas.size(), 2u);
  EXPECT_TRUE(plan->configuration.absent.empty());
  EXPECT_THAT(plan->change, HasSubstr("10.0.0.2:7000 is removed"));
  for (MemberLook& each : members_) SetConfiguration(each, 6, {0, 1});
  const auto again = PlanTake(members_, {}, 0, {}, kRemoveLast);
  ASSERT_OK(again);
  EXPECT_EQ(again->change, "");
}

TEST_F(ChangePlanTest, ARemovedReplicaMayBeAddedAgain) {
  for (size_t i = 0; i < 2; ++i) SetConfiguration(members_[i], 6, {0, 1});
  const auto plan = PlanTake(members_, {}, 0, {}, {"10.0.0.2:7000", ""});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->joiners, ElementsAre(2));
}

TEST_F(ChangePlanTest, TwoReplicasDoNotBecomeOneWithoutTheOther) {
  for (MemberLook& each : members_) SetConfiguration(each, 5, {0, 1});
  members_.resize(1);
  EXPECT_THAT(PlanTake(members_, {}, 0, {}, {"", "10.0.0.1:7000"}),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 2")));
}

TEST_F(ChangePlanTest, NothingChangesWhileAnotherReplicaIsAway) {
  ListAnother();
  std::vector<MemberLook> all = members_;
  const auto missing = Lose(1);
  EXPECT_THAT(PlanTake(members_, missing, 0, kContinue, kAdd),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("10.0.0.1:7000"), HasSubstr("all of"))));
  members_.pop_back();
  members_.pop_back();
  EXPECT_THAT(PlanTake(members_, missing, 0, kContinue, kRemoveLast), StatusIs(Code::kUnavailable));
  // A replica that lost its pool has seen no earlier change.
  members_ = all;
  members_[1].hello.node_id = kOther;
  members_[1].hello.group = "";
  members_[1].hello.installed_epoch = members_[1].hello.sealed_epoch = 0;
  EXPECT_THAT(PlanTake(members_, {}, 0, kContinue, kAdd), StatusIs(Code::kUnavailable));
}

// Whatever two changes were cut short one after the other, no two disjoint sets of replicas serve.
TEST_F(ChangePlanTest, TwoChangesThatWereCutShortLetOneSetServe) {
  // Four replicas. The addition of a fifth one was installed at replica 0 and at the fifth; then
  // the removal of replica 3 is asked for by somebody who reaches 1 and 2 only.
  ListAnother();
  MemberLook fifth = members_[3];
  fifth.address = "10.0.0.4:7000";
  fifth.hello.node_id = NodeId(4);
  for (MemberLook& each : members_) SetConfiguration(each, 5, {0, 1, 2, 3});
  SetConfiguration(members_[0], 6, {0, 1, 2, 3, 4});
  SetConfiguration(fifth, 6, {0, 1, 2, 3, 4});
  const std::vector<MissingReplica> first{{members_[0].name, members_[0].address, "cut off"}};
  const std::vector<MemberLook> reached{members_[1], members_[2]};
  EXPECT_THAT(PlanTake(reached, first, 0, kContinue, {"", kAdded}), StatusIs(Code::kUnavailable));
  // With all of them the fifth one, too, must be listed, because replica 0 has recorded it.
  const std::vector<MemberLook> three{members_[0], members_[1], members_[2]};
  EXPECT_THAT(PlanTake(three, {}, 0, kContinue, {"", kAdded}),
              StatusIs(Code::kInvalidArgument, HasSubstr("10.0.0.4:7000")));
}

}  // namespace
}  // namespace hyperloop
