// Tests, with real processes, a group that goes on without a replica that failed, and takes it in
// again (on_replica_failure=continue).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ShrunkenGroupTest : public StoreTest {
 protected:
  // Calls wait long enough on a slow machine. A replica is left out after a quarter of the time.
  StoreOptions Continuing() const {
    StoreOptions options = Options();
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(12);
    return options;
  }
  std::unique_ptr<Store> Serving(const StoreOptions& options) {
    auto store = Taken(options, log_);
    if (store == nullptr) return nullptr;
    const auto file = store->Create("f");
    EXPECT_OK(file);
    file_ = file.ok() ? *file : FileId{};
    EXPECT_OK(AppendDurably(*store, file_, "one"));
    return store;
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
  Status Refusal(const StoreOptions& options) {
    auto store = Store::Open(options, log_);
    if (!store.ok()) return store.status();
    TakeResult result;
    return (*store)->Take(Request(), &result);
  }

  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
  FileId file_{};
};

TEST_F(ShrunkenGroupTest, GoesOnWithoutADeadReplicaAndTakesItInAgain) {
  for (uint32_t dead = 0; dead < 3; ++dead) {
    SCOPED_TRACE(dead);
    log_->Clear();
    auto store = Serving(Continuing());
    ASSERT_NE(store, nullptr);
    cluster_.KillReplica(dead);
    EXPECT_OK(AppendDurably(*store, file_, "two"));
    const NodeStatus shrunken = StatusOf((dead + 1) % 3);
    EXPECT_EQ(shrunken.replicas.size(), 2u);
    EXPECT_THAT(shrunken.absent, ElementsAre(cluster_.endpoint(dead)));
    EXPECT_THAT(shrunken.configuration.absent, ElementsAre(cluster_.endpoint(dead)));
    EXPECT_TRUE(log_->Has("going on with 2 of 3 replicas"));
    ASSERT_OK(cluster_.Restart());
    EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
    EXPECT_THAT(StatusOf(dead).absent, IsEmpty());
    EXPECT_OK(AppendDurably(*store, file_, "three"));
    EXPECT_EQ(Content(*store, "f"), "onetwothree");
    EXPECT_OK(store->Remove("f"));
    EXPECT_OK(store->Close());
    ExpectEqualRegions();
  }
}

TEST_F(ShrunkenGroupTest, NothingIsLostWhileReplicasComeAndGoUnderLoad) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  std::atomic<bool> stop{false};
  std::atomic<int> appended{0};
  Status failed;
  std::thread writer([&] {
    while (!stop && failed.ok()) {
      failed = AppendDurably(*store, file_, "12345678");
      if (failed.ok()) ++appended;
    }
  });
  for (uint32_t round = 0; round < 3; ++round) {
    const int before = appended;
    EXPECT_TRUE(Eventually([&] { return appended > before + 20; }));
    cluster_.KillReplica(round);
    EXPECT_TRUE(Eventually([&] { return !StatusOf((round + 1) % 3).absent.empty(); }));
    const int shrunken = appended;
    EXPECT_TRUE(Eventually([&] { return appended > shrunken + 20; }));
    EXPECT_OK(cluster_.Restart());
    EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  }
  stop = true;
  writer.join();
  EXPECT_OK(failed);
  EXPECT_EQ(Content(*store, "f").size(), 3 + 8 * static_cast<size_t>(appended));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A replica whose machine was replaced has the address, but neither the pool nor the node id.
TEST_F(ShrunkenGroupTest, AReplicaThatLostItsPoolIsFilledFromTheOthers) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(1);
  std::filesystem::remove(cluster_.pool(1));
  ASSERT_OK(cluster_.Restart());
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
  store = Taken(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store, "f"), "onetwo");
}

TEST_F(ShrunkenGroupTest, OpensWithoutADeadReplicaOnlyIfItMayContinue) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Close());
  cluster_.KillReplica(2);
  EXPECT_THAT(Refusal(Options()), StatusIs(Code::kUnavailable, HasSubstr(cluster_.endpoint(2))));
  StoreOptions all = Continuing();
  all.min_replicas = 3;
  EXPECT_THAT(Refusal(all), StatusIs(Code::kUnavailable, HasSubstr("3 are needed")));
  store = Taken(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  EXPECT_OK(AppendDurably(*store, *store->Lookup("f"), "two"));
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(cluster_.endpoint(2)));
  EXPECT_OK(store->Close());
  ASSERT_OK(cluster_.Restart());
  store = Taken(Options());  // whoever opens next takes it in again
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(IsWhole());
  EXPECT_EQ(Content(*store, "f"), "onetwo");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Two of three are the majority that decides. What one of them misses, it must not decide alone,
// nor with the one that was left out.
TEST_F(ShrunkenGroupTest, TheReplicaThatWasLeftOutDecidesNothing) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(0);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_OK(store->Close());
  store.reset();
  cluster_.KillReplica(2);
  ASSERT_OK(cluster_.Restart());
  cluster_.KillReplica(2);
  // Replica 0 still records all three, replica 1 knows better.
  EXPECT_THAT(Refusal(Continuing()),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 2")));
  cluster_.KillReplica(1);
  EXPECT_THAT(Refusal(Continuing()),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 3")));
  StoreOptions alone = Continuing();
  alone.replicas = {cluster_.endpoint(0)};
  EXPECT_THAT(Refusal(alone), StatusIs(Code::kInvalidArgument, HasSubstr("list all of them")));
  ASSERT_OK(cluster_.Restart());
  store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store, "f"), "onetwo");
}

TEST_F(ShrunkenGroupTest, AMinorityWaitsAndComesBack) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(0);
  cluster_.KillReplica(1);
  EXPECT_THAT(AppendDurably(*store, file_, "two"),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("1 of 3"), HasSubstr("2 are needed"))));
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return AppendDurably(*store, file_, "three").ok(); }));
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
