// Short outages of real processes, which a primary's callers do not notice: a replica that is
// killed, and the RNIC daemon. session_outage_test has all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "integration/serving_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

class GroupOutageTest : public ServingTest {};

// The call is under way when the replica dies.
TEST_F(GroupOutageTest, ReplicaThatDiesUnderLoadIsNotSeen) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  AppendLoop load(*store, file_);
  for (uint32_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(load.Advances());
    cluster_.KillReplica(round);
    EXPECT_OK(cluster_.Restart());
  }
  EXPECT_TRUE(load.Advances());
  EXPECT_OK(load.Stop());
  EXPECT_EQ(Content(*store, "f").size(), 3 + load.bytes());
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The daemon's socket is gone for a while, as when a package is upgraded.
TEST_F(GroupOutageTest, AppendWaitsForAnRnicDaemonThatIsNotThereYet) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  cluster_.KillRnicd();
  unlink(cluster_.socket().c_str());
  std::atomic<bool> called{false};
  Status appended;
  std::thread writer([&] {
    called = true;
    appended = AppendDurably(*store, file_, "two");
  });
  EXPECT_TRUE(Eventually([&] { return called.load(); }));
  cluster_.RestartRnicd();
  writer.join();
  EXPECT_OK(appended);
  EXPECT_EQ(Content(*store, "f"), "onetwo");
  EXPECT_OK(store->Create("g").status());
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
