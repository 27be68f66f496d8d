#include "membership/take_plan.h"

#include <algorithm>
#include <functional>

#include "membership/replica_lists.h"
#include "membership/strangers.h"
#include "membership/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

TEST_F(PlanTest, FreshReplicasAreFormatted) {
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 1u);
  EXPECT_EQ(plan->group, kNilUuid) << "who takes the group names it";
}

TEST_F(PlanTest, WhatNoReplicaHasServedIsUnserved) {
  AllOfGroup(4);
  for (MemberLook& each : members_) each.hello.served_epoch = 4;
  EXPECT_FALSE(PlanTake(members_, {}, 0, {})->unserved);
  members_[1].hello.installed_epoch = members_[1].hello.served_epoch = 3;
  EXPECT_FALSE(PlanTake(members_, {}, 0, {})->unserved) << "it may be on an old copy of its pool";
  members_[0].hello.served_epoch = members_[2].hello.served_epoch = 3;
  EXPECT_TRUE(PlanTake(members_, {}, 0, {})->unserved);
}

TEST_F(PlanTest, EpochExceedsEverySealedOne) {
  AllOfGroup(4);
  members_[1].hello.sealed_epoch = 9;  // a candidate that lost elsewhere
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->format);
  EXPECT_EQ(plan->epoch, 10u);
  EXPECT_EQ(FormatUuid(plan->group), kGroup);
  EXPECT_EQ(plan->ahead, "");
}

TEST_F(PlanTest, AReplicaThatAloneDemandsAGreatEpochIsNamed) {
  AllOfGroup(4);
  members_[1].hello.sealed_epoch = 5000;
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->ahead, HasSubstr("r1 alone says that it is at epoch 5000"));
  members_[0].hello.sealed_epoch = 5000;
  const auto agreed = PlanTake(members_, {}, 0, {});
  ASSERT_OK(agreed);
  EXPECT_EQ(agreed->ahead, "");
}

// The others would be sealed step by step for ever.
TEST_F(PlanTest, AReplicaWhoseEpochsNoTakingsExplainIsNamed) {
  AllOfGroup(4);
  members_[1].hello.sealed_epoch = 4 + (1 << 20);
  EXPECT_OK(PlanTake(members_, {}, 0, {}));
  for (uint64_t control::HelloReplyT::*const epoch :
       {&control::HelloReplyT::sealed_epoch, &control::HelloReplyT::installed_epoch,
        &control::HelloReplyT::served_epoch}) {
    AllOfGroup(4);
    members_[1].hello.*epoch = 5 + (1 << 20);
    EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument, HasSubstr("replica r1 says")));
    std::vector<MemberLook> left = members_;
    std::vector<MissingReplica> missing;
    LeaveOutUnfit(&left, &missing);
    ASSERT_EQ(missing.size(), 1u);
    const auto plan = PlanTake(left, missing, 0, {true, 0});
    ASSERT_OK(plan);
    EXPECT_EQ(plan->epoch, 5u);
    members_[1].hello.*epoch = 0;
  }
}

TEST_F(PlanTest, AReplicaThatSaysWhatMakesNoSenseIsNamedAndGoesMissing) {
  AllOfGroup(4);
  const std::vector<MemberLook> honest = members_;
  const auto lie = [&](const std::function<void(control::HelloReplyT&)>& change) {
    members_ = honest;
    members_[1].hello.installed_epoch = members_[1].hello.sealed_epoch = 5;
    change(members_[1].hello);
    EXPECT_THAT(Refusal(),
                StatusIs(Code::kInvalidArgument, HasSubstr("replica r1 says of itself")));
    std::vector<MemberLook> left = members_;
    std::vector<MissingReplica> missing;
    LeaveOutUnfit(&left, &missing);
    ASSERT_EQ(missing.size(), 1u);
    EXPECT_EQ(missing[0].address, members_[1].address);
    EXPECT_OK(PlanTake(left, missing, 0, {true, 0}));
  };
  lie([](control::HelloReplyT& hello) { hello.installed_nodes[0] = "no uuid"; });
  lie([](control::HelloReplyT& hello) { hello.absent_nodes = hello.installed_nodes; });
  lie([](control::HelloReplyT& hello) { hello.branch_owner = {1, 2, 3}; });
  lie([](control::HelloReplyT& hello) { hello.group = "no uuid"; });
  lie([](control::HelloReplyT& hello) { hello.node_id = "no uuid"; });
}

// An old group whose other replicas were replaced.
TEST_F(PlanTest, AReplicaIsNotFarAheadOfNewOnes) {
  AllOfGroup(5 + (1 << 20));
  for (MemberLook& each : members_)
    if (&each != &members_[1]) each.hello = control::HelloReplyT();
  EXPECT_EQ(WhyFarAhead(members_[1], members_), "");
  for (MemberLook& each : members_)
    if (&each != &members_[1]) each.hello.sealed_epoch = 3;
  EXPECT_EQ(WhyFarAhead(members_[1], members_), "") << "an opening that was cut short sealed them";
  members_[0].hello.installed_epoch = 3;
  EXPECT_NE(WhyFarAhead(members_[1], members_), "");
}

TEST_F(PlanTest, FirstTakingThatCrashedIsBegunAnew) {
  members_[0].hello.group = kGroup;
  members_[0].hello.sealed_epoch = 1;
  members_[1].hello.group = kOther;
  members_[1].hello.sealed_epoch = 2;
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->format);
  EXPECT_EQ(plan->epoch, 3u);
}

TEST_F(PlanTest, FirstTakingCutBetweenInstallsGoesOn) {
  AllOfGroup(1);
  members_[2].hello.installed_epoch = 0;  // sealed for the group, not installed
  EXPECT_OK(PlanTake(members_, {}, 0, {}));
}

TEST_F(PlanTest, IfNobodyCanServeAllAreNamed) {
  const std::vector<MissingReplica> missing{{"replica r0", "", "dead"},
                                            {"replica r1", "", "blank"}};
  EXPECT_THAT(PlanTake({}, missing, 0, {}),
              StatusIs(Code::kUnavailable, testing::AllOf(HasSubstr("replica r0: dead"),
                                                          HasSubstr("replica r1: blank"))));
}

TEST_F(PlanTest, FreshAmongFormattedIsNamed) {
  AllOfGroup(3);
  members_[2].hello.node_id = kOther;
  members_[2].hello.group = "";
  members_[2].hello.sealed_epoch = members_[2].hello.installed_epoch = 0;
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument, HasSubstr("replica r2 is a new node")));
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
    const Status refused = PlanTake(part, {}, 0, {}).status();
    EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(refused.message(),
                testing::AllOf(HasSubstr("10.0.0.0:7000, 10.0.0.1:7000, 10.0.0.2:7000"),
                               HasSubstr("epoch 5"), HasSubstr("list all of them")));
  }
  std::swap(members_[0], members_[2]);  // another order of the same replicas is a chain, too
  EXPECT_OK(PlanTake(members_, {}, 0, {}));
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
  EXPECT_OK(PlanTake(members_, {}, 0, {}));
}

// Replicas went back to older copies of their pools, and promised the epoch to another owner.
TEST_F(PlanTest, OfTwoOwnersOfAnEpochTheOneCountsThatMostReplicasHaveInstalled) {
  AllOfGroup(5);
  for (size_t i = 0; i < 3; ++i) {
    members_[i].hello.served_epoch = 5;
    members_[i].hello.served_owner.assign(16, i == 0 ? 7 : 9);
  }
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->joiners, testing::ElementsAre(0));
  EXPECT_EQ(plan->recorded.owner[0], 9);
  const std::vector<MissingReplica> missing{{"replica r2", members_[2].address, "dead"}};
  const Status refused = PlanTake(std::span(members_).first(2), missing, 0, {true, 0}).status();
  EXPECT_THAT(refused, StatusIs(Code::kInvalidArgument,
                                testing::AllOf(HasSubstr("replica r0 and replica r1 have"),
                                               HasSubstr("for different primaries"))));
  members_[2].hello.installed_epoch = members_[2].hello.served_epoch = 4;
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument, HasSubstr("for different primaries")));
  // One that does not tell its owner contradicts nobody.
  members_[0].hello.served_epoch = 4;
  const auto other = PlanTake(members_, {}, 0, {});
  ASSERT_OK(other);
  EXPECT_THAT(other->joiners, testing::IsEmpty());
  EXPECT_EQ(other->recorded.owner[0], 9);
}

TEST_F(PlanTest, AMajorityGoesOnIfItMay) {
  AllOfGroup(5);
  std::vector<MissingReplica> missing{{members_[1].name, members_[1].address, "refused"}};
  members_.erase(members_.begin() + 1);
  const auto plan = PlanTake(members_, missing, 0, {true, 0});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.replicas.size(), 2u);
  ASSERT_EQ(plan->configuration.absent.size(), 1u);
  EXPECT_EQ(plan->configuration.absent[0].address, "10.0.0.1:7000");
  EXPECT_THAT(PlanTake(members_, missing, 0, {true, 3}), StatusIs(Code::kUnavailable));
  EXPECT_THAT(PlanTake(members_, {}, 0, {true, 0}),
              StatusIs(Code::kInvalidArgument, HasSubstr("list all of them")));
  missing.push_back({members_[1].name, members_[1].address, "silent"});
  members_.pop_back();
  EXPECT_THAT(PlanTake(members_, missing, 0, {true, 1}),
              StatusIs(Code::kUnavailable,
                       testing::AllOf(HasSubstr("only 1 of the group's 3"), HasSubstr("silent"))));
}

TEST_F(PlanTest, AnAbsentReplicaIsTakenInAgainButDecidesNothing) {
  AllOfGroup(5);
  for (const size_t i : {0, 1}) {
    control::HelloReplyT& hello = members_[i].hello;
    hello.sealed_epoch = hello.installed_epoch = 6;
    hello.absent_nodes = {NodeId(2)};
    hello.absent_replicas = {"10.0.0.2:7000"};
    hello.installed_nodes.pop_back();
    hello.installed_replicas.pop_back();
  }
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.replicas.size(), 3u);
  EXPECT_TRUE(plan->configuration.absent.empty());
  EXPECT_THAT(plan->joiners, testing::ElementsAre(2));
  EXPECT_EQ(plan->recorded.epoch, 6u);
  const std::vector<MissingReplica> missing{{members_[0].name, members_[0].address, "dead"}};
  members_.erase(members_.begin());
  EXPECT_THAT(PlanTake(members_, missing, 0, {true, 0}),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 2")));
}

TEST_F(PlanTest, AFreshNodeReplacesOneAtItsAddressIfItMay) {
  AllOfGroup(5);
  members_[2].hello = {};
  members_[2].hello.node_id = kOther;
  members_[2].hello.device = "ready";
  members_[2].hello.region_size = 1 << 20;
  EXPECT_THAT(Refusal(),
              StatusIs(Code::kInvalidArgument, testing::AllOf(HasSubstr("is a new node"),
                                                              HasSubstr("on_replica_failure"))));
  const auto plan = PlanTake(members_, {}, 0, {true, 0});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->joiners, testing::ElementsAre(2));
  EXPECT_TRUE(plan->configuration.absent.empty());
  members_[1].hello = members_[2].hello;
  members_[1].hello.node_id = NodeId(7);
  EXPECT_THAT(PlanTake(members_, {}, 0, {true, 0}), StatusIs(Code::kUnavailable));
}

// The new node installed a configuration that nobody served, and the group went on without it.
TEST_F(PlanTest, ANewNodeWhoseFirstJoiningWasCutIsTakenIn) {
  AllOfGroup(5);
  for (const size_t i : {0, 1}) {
    control::HelloReplyT& hello = members_[i].hello;
    hello.sealed_epoch = hello.installed_epoch = 7;
    hello.absent_nodes = {NodeId(2)};
    hello.absent_replicas = {"10.0.0.2:7000"};
    hello.installed_nodes.pop_back();
    hello.installed_replicas.pop_back();
  }
  members_[2].hello.node_id = kOther;
  members_[2].hello.installed_epoch = members_[2].hello.sealed_epoch = 6;
  members_[2].hello.installed_nodes = {NodeId(0), NodeId(1), kOther};
  const auto plan = PlanTake(members_, {}, 0, {true, 0});
  ASSERT_OK(plan);
  EXPECT_THAT(plan->joiners, testing::ElementsAre(2));
  EXPECT_EQ(plan->recorded.epoch, 7u);
}

// Two majorities of two half-installed configurations must not serve side by side.
TEST_F(PlanTest, AHalfInstalledConfigurationLetsNoMinorityServe) {
  AllOfGroup(5);
  MemberLook fourth = members_[2];
  fourth.address = "10.0.0.3:7000";
  fourth.hello.node_id = NodeId(3);
  members_.push_back(fourth);
  for (MemberLook& each : members_) {
    each.hello.installed_nodes.push_back(NodeId(3));
    each.hello.installed_replicas.push_back("10.0.0.3:7000");
  }
  // {0, 1, 2} without 3, installed at 0 only.
  control::HelloReplyT& first = members_[0].hello;
  first.installed_epoch = 6;
  first.absent_nodes = {NodeId(3)};
  first.absent_replicas = {"10.0.0.3:7000"};
  first.installed_nodes.pop_back();
  first.installed_replicas.pop_back();
  const auto served_by = [&](const std::vector<size_t>& answer) {
    std::vector<MemberLook> looks;
    std::vector<MissingReplica> missing;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (std::find(answer.begin(), answer.end(), i) != answer.end()) {
        looks.push_back(members_[i]);
      } else {
        missing.push_back({members_[i].name, members_[i].address, "cut off"});
      }
    }
    return PlanTake(looks, missing, 0, {true, 2}).ok();
  };
  EXPECT_FALSE(served_by({0, 1}));
  EXPECT_FALSE(served_by({2, 3}));
  EXPECT_TRUE(served_by({0, 1, 2}));
  EXPECT_TRUE(served_by({1, 2, 3}));
}

// The answer of a member that goes on alone since epoch 6 by force.
void BeginBranch(MemberLook* member) {
  member->hello.sealed_epoch = member->hello.installed_epoch = member->hello.branch_epoch = 6;
  member->hello.branch_owner.assign(16, 9);
  member->hello.installed_nodes = {member->hello.node_id};
  member->hello.installed_replicas = {member->address};
}

TEST_F(PlanTest, AMinorityGoesOnOnlyWithoutTheReplicasThatAreGivenUp) {
  AllOfGroup(5);
  const std::vector<MissingReplica> missing = {{"r1", members_[1].address, "dead"},
                                               {"r2", members_[2].address, "dead"}};
  members_.resize(1);
  for (const bool may_leave_out : {false, true}) {
    FailureRules rules{may_leave_out, 0};
    EXPECT_THAT(PlanTake(members_, missing, 0, rules),
                StatusIs(Code::kUnavailable, HasSubstr("promote --force")));
    rules.given_up = {missing[0].address};
    EXPECT_THAT(PlanTake(members_, missing, 0, rules), StatusIs(Code::kUnavailable))
        << "nobody said that of the other one";
    rules.given_up.push_back(missing[1].address);
    const auto plan = PlanTake(members_, missing, 0, rules);
    ASSERT_OK(plan);
    EXPECT_TRUE(plan->forced);
    EXPECT_EQ(plan->epoch, 6u);
    EXPECT_EQ(plan->configuration.replicas.size(), 1u);
    EXPECT_TRUE(plan->configuration.absent.empty()) << "they are not waited for";
    EXPECT_FALSE(plan->before_change.has_value());
    rules.given_up.push_back(members_[0].address);
    EXPECT_THAT(PlanTake(members_, missing, 0, rules),
                StatusIs(Code::kInvalidArgument, HasSubstr("but answers")));
  }
}

TEST_F(PlanTest, AMajorityGivesNobodyUp) {
  AllOfGroup(5);
  const std::vector<MissingReplica> missing = {{"r2", members_[2].address, "dead"}};
  members_.resize(2);
  FailureRules rules;
  rules.given_up = {missing[0].address};
  EXPECT_THAT(PlanTake(members_, missing, 0, rules),
              StatusIs(Code::kUnavailable, HasSubstr("on_replica_failure=continue")));
  rules.may_leave_out = true;
  const auto plan = PlanTake(members_, missing, 0, rules);
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->forced);
  EXPECT_EQ(plan->configuration.absent.size(), 1u);
}

TEST_F(PlanTest, WhatWasGivenUpNeverJoinsABranch) {
  AllOfGroup(5);
  BeginBranch(&members_[0]);
  for (const uint64_t others : {5, 6, 7}) {  // they may have gone on meanwhile
    for (const size_t i : {1, 2})
      members_[i].hello.installed_epoch = members_[i].hello.sealed_epoch = others;
    for (const ReplicaChange& change : {ReplicaChange{}, {members_[1].address, ""}}) {
      for (const bool may_leave_out : {false, true}) {
        EXPECT_THAT(PlanTake(members_, {}, 0, {may_leave_out, 0}, change),
                    StatusIs(Code::kInvalidArgument, HasSubstr("different histories")))
            << others;
      }
    }
  }
  const std::vector<MemberLook> alone = {members_[0]};
  const auto plan = PlanTake(alone, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.branch.epoch, 6u) << "the branch goes on";
  // With a fresh pool it is a new replica.
  members_.resize(2);
  members_[1].hello.node_id = NodeId(7);
  members_[1].hello.group = "";
  members_[1].hello.installed_epoch = members_[1].hello.sealed_epoch = 0;
  EXPECT_OK(PlanTake(members_, {}, 0, {}, {members_[1].address, ""}));
}

// A promotion by force was cut short before it had installed the branch at both that were left.
TEST_F(PlanTest, AHalfInstalledBranchGoesOn) {
  AllOfGroup(5);
  BeginBranch(&members_[0]);
  members_[0].hello.installed_nodes.push_back(NodeId(1));
  members_[0].hello.installed_replicas.push_back(members_[1].address);
  members_.resize(2);
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.branch.epoch, 6u);
  members_[1].hello.installed_epoch = 7;
  EXPECT_THAT(Refusal(),
              StatusIs(Code::kInvalidArgument,
                       testing::AllOf(HasSubstr("different histories"), HasSubstr("--partial"),
                                      HasSubstr("set its pool aside (keep it"))))
      << "it has served the others since";
}

TEST_F(PlanTest, AMissingReplicaThatNobodyRecordedIsRefused) {
  AllOfGroup(5);
  EXPECT_THAT(
      PlanTake(members_, std::vector<MissingReplica>{{"replica x", "x:1", "silent"}}, 0, {true, 0}),
      StatusIs(Code::kInvalidArgument, HasSubstr("replica x is not of this")));
}

TEST_F(PlanTest, ANewGroupNeedsAllOfItsReplicas) {
  const std::vector<MissingReplica> missing{{members_[0].name, members_[0].address, "dead"}};
  members_.erase(members_.begin());
  EXPECT_THAT(PlanTake(members_, missing, 0, {true, 0}),
              StatusIs(Code::kUnavailable, HasSubstr("make a group")));
}

TEST_F(PlanTest, WhatIsInstalledIsTheMembersAsListed) {
  AllOfGroup(5);
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  ASSERT_EQ(plan->configuration.replicas.size(), 3u);
  EXPECT_EQ(FormatUuid(plan->configuration.replicas[1].node), NodeId(1));
  EXPECT_EQ(plan->configuration.replicas[1].address, "10.0.0.1:7000");
}

TEST_F(PlanTest, TheLogsOwnConfigurationMustAgree) {
  AllOfGroup(5);
  const auto plan = PlanTake(members_, {}, 0, {});
  ASSERT_OK(plan);
  Configuration logged = plan->configuration;
  logged.epoch = 5;
  EXPECT_OK(CheckLogged(*plan, logged));
  std::swap(logged.replicas[0], logged.replicas[1]);
  EXPECT_OK(CheckLogged(*plan, logged));
  logged.replicas.push_back({*ParseUuid(kOther), "10.0.0.9:7000"});
  EXPECT_THAT(CheckLogged(*plan, logged), StatusIs(Code::kCorruption, HasSubstr("10.0.0.9:7000")));
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
  EXPECT_THAT(PlanTake(members_, {}, 2 << 20, {}), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(PlanTake(members_, {}, 1 << 20, {}));
  members_[1].hello.region_size = 4096;
  EXPECT_THAT(Refusal().message(), HasSubstr("replica r1 has a region of 4096 B"));
}

TEST_F(PlanTest, ReplicaWithoutRnicIsUnavailable) {
  members_[1].hello.device = "the daemon is gone";
  EXPECT_THAT(Refusal(), StatusIs(Code::kUnavailable, HasSubstr("replica r1")));
}

}  // namespace
}  // namespace hyperloop
