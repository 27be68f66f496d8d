// Which replicas a group may have after a taking that adds one or removes one.
#include <algorithm>
#include <cctype>
#include <functional>

#include "membership/judgement.h"
#include "membership/take_plan_fixture.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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

std::vector<std::string> Addresses(const std::vector<Configuration::Replica>& replicas) {
  std::vector<std::string> out;
  for (const auto& each : replicas) out.push_back(each.address);
  return out;
}

// Before the replicas change, those that stay record that they decide.
TEST_F(ChangePlanTest, ThoseThatStayAreInstalledBeforeAnyChange) {
  EXPECT_FALSE(PlanTake(members_, {}, 0, {}, {})->before_change.has_value());
  const std::vector<MemberLook> three = members_;
  ListAnother();
  auto plan = PlanTake(members_, {}, 0, {}, kAdd);
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->before_change.has_value());
  EXPECT_THAT(Addresses(plan->before_change->replicas),
              ElementsAre("10.0.0.0:7000", "10.0.0.1:7000", "10.0.0.2:7000"));
  EXPECT_THAT(plan->before_change->absent, ElementsAre());
  members_.resize(2);
  plan = PlanTake(members_, {}, 0, {}, kRemoveLast);
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->before_change.has_value());
  EXPECT_THAT(Addresses(plan->before_change->replicas),
              ElementsAre("10.0.0.0:7000", "10.0.0.1:7000"));
  EXPECT_THAT(Addresses(plan->before_change->absent), ElementsAre("10.0.0.2:7000"));
  // Leaving a replica out changes nothing about which ones the group has.
  members_ = three;
  const auto missing = Lose(2);
  plan = PlanTake(members_, missing, 0, kContinue, {});
  ASSERT_OK(plan);
  EXPECT_FALSE(plan->before_change.has_value());
  // A new pool at the address of a lost one is another node.
  members_ = three;
  members_[2].hello.node_id = NodeId(7);
  members_[2].hello.installed_epoch = members_[2].hello.sealed_epoch = 0;
  plan = PlanTake(members_, {}, 0, kContinue, {});
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->before_change.has_value());
  EXPECT_EQ(plan->before_change->replicas.size(), 2u);
  EXPECT_EQ(FormatUuid(plan->before_change->absent.at(0).node), NodeId(2));
}

// Four replicas. The removal of 0 was installed at 1 alone, then that of 1 at 0 and 2. Replicas 1
// and 3 know nothing of the second removal, but 3 has recorded who stayed.
TEST_F(ChangePlanTest, TwoRemovalsThatWereCutShortLetOneSetServe) {
  ListAnother();
  for (MemberLook& each : members_) SetConfiguration(each, 5, {0, 1, 2, 3});
  for (const size_t i : {1, 2, 3}) SetConfiguration(members_[i], 6, {1, 2, 3});
  for (const size_t i : {1, 2, 3}) {
    members_[i].hello.absent_nodes = {NodeId(0)};
    members_[i].hello.absent_replicas = {"10.0.0.0:7000"};
  }
  SetConfiguration(members_[1], 7, {1, 2, 3});
  members_[1].hello.absent_nodes.clear();
  members_[1].hello.absent_replicas.clear();
  const std::vector<MemberLook> second{members_[0], members_[2], members_[3]};
  const auto plan = PlanTake(second, {}, 0, kContinue, {"", "10.0.0.1:7000"});
  ASSERT_OK(plan);
  ASSERT_TRUE(plan->before_change.has_value());
  EXPECT_THAT(Addresses(plan->before_change->replicas),
              ElementsAre("10.0.0.0:7000", "10.0.0.2:7000", kAdded));
  for (const size_t i : {0, 2, 3}) {
    SetConfiguration(members_[i], 8, {0, 2, 3});
    members_[i].hello.absent_nodes = {NodeId(1)};
    members_[i].hello.absent_replicas = {"10.0.0.1:7000"};
  }
  const std::vector<MemberLook> rest{members_[1], members_[3]};
  std::vector<MissingReplica> missing{{"replica r2", "10.0.0.2:7000", "cut off"}};
  EXPECT_THAT(PlanTake(rest, missing, 0, kContinue, {}),
              StatusIs(Code::kInvalidArgument, HasSubstr("10.0.0.0:7000")));
  missing.push_back({"replica r0", "10.0.0.0:7000", "cut off"});
  EXPECT_THAT(PlanTake(rest, missing, 0, kContinue, {}),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 3")));
}

// What is listed for each recorded replica, and whether it answers.
enum class Seen : uint8_t { kAnswers, kDead, kUnlisted, kNewNode };

// Everything that PlanTake gets.
struct Situation {
  std::vector<MemberLook> members;
  std::vector<MissingReplica> missing, unlisted;
  FailureRules rules;
  ReplicaChange change;

  Result<TakePlan> Plan() const { return PlanTake(members, missing, 0, rules, change); }
};

// What follows `word` in the message, up to the next space or punctuation; empty: it has no `word`.
std::string Named(const std::string& message, const std::string& word) {
  const size_t at = message.find(word);
  if (at == std::string::npos) return "";
  size_t end = at + word.size();
  while (end < message.size() &&
         (std::isalnum(message[end]) != 0 || message[end] == '.' || message[end] == ':'))
    ++end;
  return message.substr(at + word.size(), end - at - word.size());
}

class WayOutTest : public ChangePlanTest {
 protected:
  // The recorded replicas as they are seen, and `fresh` further nodes that the group has not.
  static Situation Make(const std::vector<Seen>& seen, int fresh, FailureRules rules) {
    Situation now;
    now.rules = rules;
    const int count = static_cast<int>(seen.size());
    std::vector<int> nodes;
    for (int i = 0; i < count; ++i) nodes.push_back(i);
    for (int i = 0; i < count + fresh; ++i) {
      MemberLook look;
      look.name = "replica r" + std::to_string(i);
      look.address = "10.0.0." + std::to_string(i) + ":7000";
      look.hello.node_id = NodeId(i);
      look.hello.device = "ready";
      look.hello.region_size = 1 << 20;
      const Seen how = i < count ? seen[static_cast<size_t>(i)] : Seen::kNewNode;
      if (how == Seen::kAnswers) SetConfiguration(look, 5, nodes);
      if (how == Seen::kNewNode && i < count) look.hello.node_id[0] = 'f';
      if (how == Seen::kDead) now.missing.push_back({look.name, look.address, "dead"});
      if (how == Seen::kUnlisted) now.unlisted.push_back({look.name, look.address, "dead"});
      if (how == Seen::kAnswers || how == Seen::kNewNode) now.members.push_back(look);
    }
    return now;
  }
  // All that is dead or not listed is lost for good.
  static Situation ByForce(const Situation& now) {
    Situation then = now;
    then.change = {};
    then.missing.insert(then.missing.end(), now.unlisted.begin(), now.unlisted.end());
    for (const MissingReplica& each : then.missing) then.rules.given_up.push_back(each.address);
    return then;
  }
  // Follows each way out that the refusal names.
  static void ExpectWaysOutAreGranted(const Situation& now, const std::string& message) {
    EXPECT_THAT(message, Not(HasSubstr("18446744073709551615")));
    if (const std::string removed = Named(message, "remove_replica="); !removed.empty()) {
      Situation then = now;
      then.change.removed = removed;
      EXPECT_OK(then.Plan()) << message;
    }
    if (const std::string added = Named(message, "add_replica="); !added.empty()) {
      Situation then = now;
      then.change.added = added;
      EXPECT_OK(then.Plan()) << message;
    }
    if (message.find("promote --force") != std::string::npos) {
      const auto plan = ByForce(now).Plan();
      EXPECT_TRUE(plan.ok() && plan->forced) << message;
    }
    if (message.find("on_replica_failure=continue") != std::string::npos) {
      Situation then = now;
      then.rules.may_leave_out = true;
      then.missing.insert(then.missing.end(), now.unlisted.begin(), now.unlisted.end());
      EXPECT_OK(then.Plan()) << message;
    }
  }
  static void ForEachSituation(const std::function<void(const Situation&)>& use) {
    const std::vector<FailureRules> rules{{false, 0}, {true, 0}, {true, 3}};
    for (size_t count = 1; count <= 5; ++count) {
      std::vector<Seen> seen(count, Seen::kAnswers);
      for (size_t number = 0; number < size_t{1} << (2 * count); ++number) {
        for (size_t i = 0; i < count; ++i) seen[i] = static_cast<Seen>(number >> (2 * i) & 3);
        if (std::count(seen.begin(), seen.end(), Seen::kAnswers) == 0) continue;
        for (const FailureRules& each : rules)
          for (const int fresh : {0, 1, 2}) use(Make(seen, fresh, each));
      }
    }
  }
};

TEST_F(WayOutTest, EachOneThatARefusalNamesIsGranted) {
  int refused = 0;
  ForEachSituation([&](const Situation& now) {
    const Status status = now.Plan().status();
    if (status.ok() || HasFailure()) return;
    ++refused;
    ExpectWaysOutAreGranted(now, status.message());
    // Where the change that is asked for is refused, another way may be named.
    for (const MissingReplica& each : now.unlisted) {
      Situation removing = now;
      removing.change.removed = each.address;
      const Status then = removing.Plan().status();
      if (!then.ok()) ExpectWaysOutAreGranted(removing, then.message());
    }
  });
  EXPECT_GT(refused, 1000);
}

TEST_F(WayOutTest, WhereTooFewAreLeftOnlyForceIsNamed) {
  constexpr Seen kAnswers = Seen::kAnswers, kDead = Seen::kDead, kUnlisted = Seen::kUnlisted;
  const auto no_other =
      AllOf(Not(HasSubstr("remove_replica=")), Not(HasSubstr("on_replica_failure=continue")));
  const auto force = AllOf(HasSubstr("hyperloopctl promote --force"), no_other);
  const FailureRules block;
  EXPECT_THAT(Make({kAnswers, kUnlisted}, 0, block).Plan().status().message(), force);
  EXPECT_THAT(Make({kAnswers, kUnlisted, kUnlisted}, 0, block).Plan().status().message(), force);
  EXPECT_THAT(Make({kAnswers, kDead}, 0, kContinue).Plan().status().message(), force);
  EXPECT_THAT(Make({kAnswers, Seen::kNewNode}, 0, block).Plan().status().message(),
              AllOf(HasSubstr("hyperloopctl export"), HasSubstr("hyperloopctl adopt"), no_other,
                    HasSubstr("former pool")));
  Situation removing = Make({kAnswers, kUnlisted}, 0, block);
  removing.change.removed = "10.0.0.1:7000";
  EXPECT_THAT(removing.Plan(), StatusIs(Code::kUnavailable, AllOf(force, HasSubstr("2 are"))));
}

TEST_F(WayOutTest, WhereAMajorityIsLeftItMayGoOn) {
  constexpr Seen kAnswers = Seen::kAnswers, kUnlisted = Seen::kUnlisted;
  EXPECT_THAT(Make({kAnswers, kAnswers, kUnlisted}, 0, {}).Plan().status().message(),
              HasSubstr("remove_replica=10.0.0.2:7000"));
  EXPECT_THAT(
      Make({kAnswers, kAnswers, kAnswers, kUnlisted, kUnlisted}, 0, {}).Plan().status().message(),
      AllOf(Not(HasSubstr("remove_replica=")), HasSubstr("on_replica_failure=continue")));
  EXPECT_THAT(Make({kAnswers, kAnswers, Seen::kDead}, 0, {true, 3}).Plan().status().message(),
              AllOf(HasSubstr("only 2 of"), HasSubstr("min_replicas=3")));
}

// --- a replica that was left out leaves while the group serves

TEST(LeavingTest, OnlyTheOneAbsentReplicaLeaves) {
  Configuration own;
  own.replicas = {{kNilUuid, "r0"}, {kNilUuid, "r1"}, {kNilUuid, "r2"}};
  EXPECT_THAT(CheckLeaver(own, "r2"), StatusIs(Code::kUnavailable, HasSubstr("not left r2 out")));
  own.absent = {{kNilUuid, "r3"}};
  EXPECT_OK(CheckLeaver(own, "r3"));
  EXPECT_EQ(CheckLeaver(own, "r2").code(), Code::kUnavailable);
  own.absent.push_back({kNilUuid, "r4"});
  EXPECT_THAT(CheckLeaver(own, "r3"), StatusIs(Code::kUnavailable, HasSubstr("r4 is not")));
}

// The last of `count` replicas was left out, and the others were cut short when they installed a
// configuration without it.
class Leaving {
 public:
  Leaving(int count, uint32_t installed) : count_(count) {
    for (int i = 0; i < count; ++i) {
      MemberLook look{"replica r" + std::to_string(i), Address(i), {}};
      control::HelloReplyT& hello = look.hello;
      const bool last = i + 1 == count, without = !last && ((installed >> i) & 1) != 0;
      hello.node_id = Node(i);
      hello.device = "ready";
      hello.region_size = 1 << 20;
      hello.group = kGroup;
      hello.sealed_epoch = hello.installed_epoch = hello.served_epoch = last ? 4 : without ? 6 : 5;
      for (int j = 0; j < count - (last ? 0 : 1); ++j) {
        hello.installed_nodes.push_back(Node(j));
        hello.installed_replicas.push_back(Address(j));
      }
      if (!last && !without) {
        hello.absent_nodes = {Node(count - 1)};
        hello.absent_replicas = {Address(count - 1)};
      }
      looks_.push_back(std::move(look));
    }
  }
  // Whether the replicas of `up` are enough for an opening that lists the first `listed`.
  bool Serves(uint32_t up, int listed) const {
    std::vector<MemberLook> members;
    std::vector<MissingReplica> missing;
    for (int i = 0; i < listed; ++i) {
      if (((up >> i) & 1) != 0)
        members.push_back(looks_[static_cast<size_t>(i)]);
      else
        missing.push_back({"replica r" + std::to_string(i), Address(i), "does not answer"});
    }
    return !members.empty() && PlanTake(members, missing, 0, {true, 0}).ok();
  }
  bool Serves(uint32_t up) const { return Serves(up, count_) || Serves(up, count_ - 1); }

 private:
  static std::string Address(int i) { return "10.0.0." + std::to_string(i) + ":7000"; }
  static std::string Node(int i) {
    return "00000000-0000-4000-8000-00000000000" + std::to_string(i);
  }
  const int count_;
  std::vector<MemberLook> looks_;
};

TEST(LeavingTest, NoTwoPartsOfAGroupServeWhereverItIsCutShort) {
  for (int count = 3; count <= 6; ++count) {
    const uint32_t all = (1u << count) - 1;
    for (uint32_t installed = 0; installed <= all / 2; ++installed) {
      const Leaving group(count, installed);
      EXPECT_TRUE(group.Serves(all / 2)) << "those that stay";
      for (uint32_t up = 0; up <= all; ++up)
        EXPECT_FALSE(group.Serves(up) && group.Serves(all & ~up)) << count << installed << up;
    }
  }
}

}  // namespace
}  // namespace hyperloop
