// The looks of an agent at a real group: whom they see, and whom they wait for.
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "agent/group_watch.h"
#include "support/database.h"
#include "support/eventually.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

using test::Eventually;

class AgentLookTest : public test::SharedClusterTest<3, 32 << 20> {
 protected:
  std::unique_ptr<GroupWatch> Watch() const {
    std::vector<std::unique_ptr<ReplicaWay>> ways;
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      auto way = ReplicaWay::Make(cluster_.Options(), cluster_.endpoint(i));
      EXPECT_OK(way);
      ways.push_back(std::move(*way));
    }
    auto watch = GroupWatch::Start(std::move(ways));
    EXPECT_OK(watch);
    return std::move(*watch);
  }
  // What one look sees, once those have answered that it waits for.
  static std::vector<Result<NodeStatus>> Look(GroupWatch& watch) {
    watch.Begin();
    pollfd ended{watch.ended(), POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, 300'000), 1);
    return watch.Take();
  }
  static size_t Answered(const std::vector<Result<NodeStatus>>& seen) {
    return static_cast<size_t>(std::ranges::count_if(seen, [](const auto& e) { return e.ok(); }));
  }
};

TEST_F(AgentLookTest, AllReplicasSayWhoHasTheGroup) {
  test::TestDatabase database(cluster_.Options(), cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  const auto watch = Watch();
  EXPECT_EQ(Answered(Look(*watch)), 3u) << "asked";
  const auto seen = Look(*watch);
  ASSERT_EQ(Answered(seen), 3u) << "read";
  const auto whole = cluster_.ReplicaStatus(0);
  ASSERT_OK(whole);
  for (const auto& each : seen) {
    EXPECT_EQ(each->sealed_epoch, whole->sealed_epoch);
    EXPECT_EQ(each->owner, whole->owner);
    EXPECT_EQ(each->owner_name, whole->owner_name);
    EXPECT_EQ(each->replicas, whole->replicas);
    EXPECT_EQ(each->group, whole->group);
    EXPECT_FALSE(each->released);
  }
  ASSERT_TRUE(Eventually([&] {
    const auto later = Look(*watch);
    return Answered(later) == 3 && later[0]->heartbeat != seen[0]->heartbeat &&
           later[1]->heartbeat != seen[1]->heartbeat && later[2]->heartbeat != seen[2]->heartbeat;
  }));
  database.Close();
  const auto closed = Look(*watch);
  ASSERT_EQ(Answered(closed), 3u);
  for (const auto& each : closed) EXPECT_TRUE(each->released);
}

TEST_F(AgentLookTest, AStoppedReplicaIsSeenAndADeadOneHoldsUpNobody) {
  const auto watch = Watch();
  ASSERT_EQ(Answered(Look(*watch)), 3u);
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_EQ(Answered(Look(*watch)), 3u);
  cluster_.SignalReplica(1, SIGCONT);
  shared_.UseUp();
  cluster_.KillReplica(2);
  ASSERT_TRUE(Eventually([&] { return !Look(*watch)[2].ok(); }));
  const auto seen = Look(*watch);
  EXPECT_EQ(Answered(seen), 2u);
  EXPECT_FALSE(seen[2].ok());
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return Answered(Look(*watch)) == 3; }));
}

TEST_F(AgentLookTest, AGroupWithoutADatabaseIsKnown) {
  const auto watch = Watch();
  ASSERT_EQ(Answered(Look(*watch)), 3u);
  const auto holds = [&](size_t place) {
    watch->FindDatabase(place);
    EXPECT_TRUE(Eventually([&] { return watch->database(place).has_value(); }));
    return watch->database(place).value_or(Unavailable("no answer"));
  };
  const auto before = holds(0);
  ASSERT_OK(before);
  EXPECT_FALSE(*before);
  test::TestDatabase database(cluster_.Options(), cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  const auto after = holds(1);
  ASSERT_OK(after);
  EXPECT_TRUE(*after);
}

}  // namespace
}  // namespace hyperloop::agent
