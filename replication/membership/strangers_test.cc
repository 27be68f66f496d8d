#include "membership/strangers.h"

#include "membership/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The group's third replica is lost, and another node answers at its address.
class StrangersTest : public PlanTest {
 protected:
  StrangersTest() {
    AllOfGroup(4);
    members_[2].hello.node_id = kOther;
    members_[2].hello.group = kOther;
    members_[2].hello.installed_epoch = members_[2].hello.sealed_epoch = 99;
    members_[2].hello.installed_nodes = {kOther};
    members_[2].hello.installed_replicas = {"10.0.0.9:7000"};
  }
  void LeaveOut() { LeaveOutStrangers(&members_, &missing_); }
  // The addresses of what is missing.
  std::vector<std::string> Missing() const {
    std::vector<std::string> addresses;
    for (const MissingReplica& each : missing_) addresses.push_back(each.address);
    return addresses;
  }
  std::vector<MissingReplica> missing_;
};

TEST_F(StrangersTest, AReplicaOfAnotherGroupCountsAsMissing) {
  EXPECT_THAT(PlanTake(members_, {}, 0, {true, 0}).status(),
              StatusIs(Code::kInvalidArgument, HasSubstr(kOther)));
  LeaveOut();
  ASSERT_THAT(Missing(), ElementsAre("10.0.0.2:7000"));
  EXPECT_THAT(missing_[0].why, HasSubstr(NodeId(2)));
  EXPECT_THAT(missing_[0].why, HasSubstr("set its pool aside (keep it"));
  const auto plan = PlanTake(members_, missing_, 0, {true, 0});
  ASSERT_OK(plan);
  EXPECT_EQ(plan->configuration.replicas.size(), 2u);
  ASSERT_EQ(plan->configuration.absent.size(), 1u);
  EXPECT_EQ(FormatUuid(plan->configuration.absent[0].node), NodeId(2));
}

// A copy of a pool has its node's promises, and those of nobody else.
TEST_F(StrangersTest, ACopyOfAMemberCountsAsMissing) {
  members_[2].hello = members_[0].hello;
  EXPECT_THAT(PlanTake(members_, {}, 0, {true, 0}).status(),
              StatusIs(Code::kInvalidArgument, HasSubstr("the same replica")));
  LeaveOut();
  ASSERT_THAT(Missing(), ElementsAre("10.0.0.2:7000"));
  EXPECT_THAT(missing_[0].why, HasSubstr("a copy of"));
  EXPECT_OK(PlanTake(members_, missing_, 0, {true, 0}));
}

// The replica's pool was moved there, and an older copy of it took its place: what only the newer
// one has is not left out.
TEST_F(StrangersTest, ACopyThatIsNewerThanWhatIsLeftIsNamedAndNotLeftOut) {
  AllOfGroup(5);
  members_[1].hello = members_[0].hello;
  MemberLook& newer = members_[1];
  for (auto* epoch :
       {&newer.hello.installed_epoch, &newer.hello.served_epoch, &newer.hello.sealed_epoch}) {
    newer.hello.installed_epoch = newer.hello.served_epoch = newer.hello.sealed_epoch = 5;
    *epoch = 9;
    LeaveOut();
    EXPECT_THAT(Missing(), IsEmpty());
    EXPECT_THAT(PlanTake(members_, missing_, 0, {true, 0}).status(),
                StatusIs(Code::kInvalidArgument, HasSubstr("what replica r1 holds is the newer")));
  }
}

// promote --force goes on with the one that is left.
TEST_F(StrangersTest, WhoIsLeftGoesOnByForceBesideAStranger) {
  missing_.push_back({members_[1].name, members_[1].address, "it does not answer"});
  members_.erase(members_.begin() + 1);
  LeaveOut();
  EXPECT_THAT(Missing(), ElementsAre("10.0.0.1:7000", "10.0.0.2:7000"));
  const auto plan = PlanTake(members_, missing_, 0, {true, 0, Missing()});
  ASSERT_OK(plan);
  EXPECT_TRUE(plan->forced);
}

TEST_F(StrangersTest, AFreshNodeAReplicaThatMovedAndOneThatIsListedByMistakeAreNone) {
  members_[2].hello.installed_epoch = 0;
  members_[2].hello.group = "";
  LeaveOut();
  EXPECT_THAT(Missing(), IsEmpty()) << "fresh";
  AllOfGroup(4);
  members_[1].hello.node_id = NodeId(2);
  members_[2].hello.node_id = NodeId(1);
  LeaveOut();
  EXPECT_THAT(Missing(), IsEmpty()) << "they changed places";
  members_[2].hello.node_id = kOther;
  members_[2].hello.group = kOther;
  members_[2].address = "10.0.0.9:7000";
  LeaveOut();
  EXPECT_THAT(Missing(), IsEmpty()) << "the group has no replica there";
}

// Nothing tells which of two groups is meant.
TEST_F(StrangersTest, OfTwoGroupsThatBothFitNeitherIsChosen) {
  members_.erase(members_.begin());
  members_[1].hello.installed_nodes = {kGroup, kOther};
  members_[1].hello.installed_replicas = {"10.0.0.1:7000", "10.0.0.2:7000"};
  LeaveOut();
  EXPECT_THAT(Missing(), IsEmpty());
}

// One that lies may claim a group of its own, to which all others are strangers.
TEST_F(StrangersTest, OfTwoGroupsThatBothFitTheOneCountsOfWhichMostAnswer) {
  members_[2].hello.installed_nodes = {kGroup, kGroup, kOther};
  members_[2].hello.installed_replicas = members_[0].hello.installed_replicas;
  EXPECT_THAT(PlanTake(members_, {}, 0, {true, 0}).status(), StatusIs(Code::kInvalidArgument));
  LeaveOut();
  EXPECT_THAT(Missing(), ElementsAre("10.0.0.2:7000"));
  EXPECT_OK(PlanTake(members_, missing_, 0, {true, 0}));
}

TEST_F(StrangersTest, WhereNobodyMayBeMissingTheRefusalSaysHowToGoOn) {
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument,
                                  HasSubstr("on_replica_failure=continue goes on without it")));
  members_.erase(members_.begin());
  EXPECT_THAT(Refusal(), StatusIs(Code::kInvalidArgument,
                                  testing::Not(HasSubstr("on_replica_failure=continue"))));
}

}  // namespace
}  // namespace hyperloop
