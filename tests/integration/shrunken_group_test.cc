// A group of real processes goes on without a replica that was killed, or stopped, and takes it in
// again (on_replica_failure=continue). session_shrunken_test has all else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/serving_fixture.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::ElementsAre;

class ShrunkenGroupTest : public ServingTest {
 protected:
  // Calls wait long enough on a slow machine. A replica that is gone is left out after a fifth of
  // the time.
  StoreOptions Continuing() const {
    StoreOptions options = Options();
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(20);
    return options;
  }
  NodeStatus StatusOf(uint32_t i) const {
    auto status = cluster_.ReplicaStatus(i);
    EXPECT_OK(status);
    return status.ok() ? std::move(status).value() : NodeStatus();
  }
  bool IsWhole() const {
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      const auto status = cluster_.ReplicaStatus(i);
      if (!status.ok() || status->replicas.size() != cluster_.replicas()) return false;
    }
    return true;
  }
};

// The first of the chain, and then its last one.
TEST_F(ShrunkenGroupTest, NothingIsLostWhileReplicasComeAndGoUnderLoad) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  AppendLoop load(*store, file_);
  for (const uint32_t dead : {0, 2}) {
    EXPECT_TRUE(load.Advances());
    cluster_.KillReplica(dead);
    EXPECT_TRUE(Eventually([&] { return !StatusOf(1).absent.empty(); }));
    EXPECT_TRUE(load.Advances());
    EXPECT_OK(cluster_.Restart());
    EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  }
  EXPECT_OK(load.Stop());
  EXPECT_EQ(Content(*store, "f").size(), 3 + load.bytes());
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A stopped replica's RNIC serves on, so commits go on, but a flush waits for its process.
TEST_F(ShrunkenGroupTest, AReplicaThatIsSilentForTooLongIsLeftOut) {
  StoreOptions options = Continuing();
  options.heartbeat_timeout = std::chrono::seconds(3);
  options.ack_timeout = std::chrono::seconds(200);  // nobody waits for a fifth of it
  const auto log = std::make_shared<LogLines>();
  auto store = Serving(options, log);
  ASSERT_NE(store, nullptr);
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_TRUE(Eventually([&] { return log->Has("going on with 2 of 3 replicas"); }));
  EXPECT_TRUE(log->Has("heartbeat_timeout = 3000 ms by replica " + cluster_.endpoint(1)));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(cluster_.endpoint(1)));
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_EQ(Content(*store, "f"), "onetwothree");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
