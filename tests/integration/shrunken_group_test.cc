// Tests, with real processes, a group that goes on without a replica that failed, and takes it in
// again (on_replica_failure=continue).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "integration/serving_fixture.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ShrunkenGroupTest : public ServingTest {
 protected:
  // Calls wait long enough on a slow machine. A replica is left out after a quarter of the time.
  StoreOptions Continuing() const {
    StoreOptions options = Options();
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(12);
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
  Status Refusal(const StoreOptions& options) {
    auto store = Store::Open(options, log_);
    if (!store.ok()) return store.status();
    TakeResult result;
    return (*store)->Take(Request(), &result);
  }

  const std::shared_ptr<LogLines> log_ = std::make_shared<LogLines>();
};

TEST_F(ShrunkenGroupTest, GoesOnWithoutADeadReplicaAndTakesItInAgain) {
  for (uint32_t dead = 0; dead < 3; ++dead) {
    SCOPED_TRACE(dead);
    log_->Clear();
    auto store = Serving(Continuing(), log_);
    ASSERT_NE(store, nullptr);
    cluster_.KillReplica(dead);
    EXPECT_OK(AppendDurably(*store, file_, "two"));
    const NodeStatus shrunken = StatusOf((dead + 1) % 3);
    EXPECT_EQ(shrunken.replicas.size(), 2u);
    EXPECT_THAT(shrunken.absent, ElementsAre(cluster_.endpoint(dead)));
    EXPECT_THAT(shrunken.configuration.absent, ElementsAre(cluster_.endpoint(dead)));
    EXPECT_THAT(shrunken.absences,
                ElementsAre(testing::MatchesRegex("since 20[0-9-]*T[0-9:]*Z: replica " +
                                                  cluster_.endpoint(dead) + " does not answer")));
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

TEST_F(ShrunkenGroupTest, MetricsNameTheReplicaThatIsLeftOut) {
  StoreOptions options = Continuing();
  options.metrics_file = cluster_.folder() + "/primary.prom";
  auto store = Serving(options, log_);
  ASSERT_NE(store, nullptr);
  const auto shows = [&](const std::string& line) {
    std::ifstream file(options.metrics_file);
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    return page.find(line) != std::string::npos;
  };
  const std::string group = "{group=\"" + pairing_.group + "\"";
  const auto present = [&](const char* value) {
    return "hyperloop_primary_replica_present" + group + ",replica=\"" + cluster_.endpoint(1) +
           "\"} " + value + "\n";
  };
  EXPECT_TRUE(Eventually([&] { return shows(present("1")); }));
  EXPECT_TRUE(shows("hyperloop_primary_recoveries_total" + group + "} 0\n"));
  cluster_.KillReplica(1);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_TRUE(Eventually([&] { return shows(present("0")); }));
  EXPECT_TRUE(shows("hyperloop_primary_recoveries_total" + group + "} 1\n"));
  EXPECT_TRUE(shows("hyperloop_primary_up" + group + "} 1\n"));
  EXPECT_OK(store->Close());
  EXPECT_FALSE(std::filesystem::exists(options.metrics_file));
}

TEST_F(ShrunkenGroupTest, NothingIsLostWhileReplicasComeAndGoUnderLoad) {
  auto store = Serving(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  AppendLoop load(*store, file_);
  for (uint32_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(load.Advances());
    cluster_.KillReplica(round);
    EXPECT_TRUE(Eventually([&] { return !StatusOf((round + 1) % 3).absent.empty(); }));
    EXPECT_TRUE(load.Advances());
    EXPECT_OK(cluster_.Restart());
    EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  }
  EXPECT_OK(load.Stop());
  EXPECT_EQ(Content(*store, "f").size(), 3 + load.bytes());
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Since when a replica is absent outlives the primary that left it out.
TEST_F(ShrunkenGroupTest, TheNextPrimaryKnowsSinceWhenAndWhyAReplicaIsAbsent) {
  auto store = Serving(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(1);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  const std::vector<std::string> first = StatusOf(0).absences;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_OK(store->Close());
  store = Taken(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(StatusOf(0).absences, first);
  EXPECT_EQ(StatusOf(2).absences, first);
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_THAT(StatusOf(0).absences, IsEmpty());
  EXPECT_OK(store->Close());
  // Here an opening leaves it out.
  cluster_.KillReplica(1);
  store = Taken(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(
      StatusOf(2).absences,
      ElementsAre(AllOf(testing::MatchesRegex("since 20[0-9-]*T[0-9:]*Z \\(an opening\\): .*"),
                        HasSubstr(cluster_.endpoint(1)))));
}

// A replica whose machine was replaced has the address, but neither the pool nor the node id.
TEST_F(ShrunkenGroupTest, AReplicaThatLostItsPoolIsFilledFromTheOthers) {
  auto store = Serving(Continuing(), log_);
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
  auto store = Serving(Continuing(), log_);
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
  auto store = Serving(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(0);
  cluster_.KillReplica(1);
  // If the first loss is noticed long before the second, the group has shrunk to two already.
  EXPECT_THAT(AppendDurably(*store, file_, "two"),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("1 of "), HasSubstr("2 are needed"))));
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return AppendDurably(*store, file_, "three").ok(); }));
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A stopped replica whose RNIC serves on does not answer requests. Taking another one in would
// interrupt the group, which could then not go on.
TEST_F(ShrunkenGroupTest, NothingIsInterruptedForAJoinerWhileAMemberIsSilent) {
  auto store = Serving(Continuing(), log_);
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(2);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  cluster_.SignalReplica(0, SIGSTOP);
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return log_->Has("a member is silent"); }));
  EXPECT_TRUE(
      Eventually([&] { return log_->Has("replica " + cluster_.endpoint(0) + " is suspected"); }));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_THAT(StatusOf(1).absent, ElementsAre(cluster_.endpoint(2)));
  cluster_.SignalReplica(0, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_EQ(Content(*store, "f"), "onetwothree");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A stopped replica's RNIC serves on, so commits go on, but a flush waits for its process.
TEST_F(ShrunkenGroupTest, AReplicaThatIsSilentForTooLongIsLeftOut) {
  StoreOptions options = Continuing();
  options.heartbeat_timeout = std::chrono::seconds(3);
  options.ack_timeout = std::chrono::seconds(200);  // nobody waits for a quarter of it
  auto store = Serving(options, log_);
  ASSERT_NE(store, nullptr);
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_TRUE(Eventually([&] { return log_->Has("going on with 2 of 3 replicas"); }));
  EXPECT_TRUE(log_->Has("heartbeat_timeout = 3000 ms by replica " + cluster_.endpoint(1)));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(cluster_.endpoint(1)));
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_EQ(Content(*store, "f"), "onetwothree");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(ShrunkenGroupTest, SilentReplicasWithoutWhichTheGroupWouldStopAreKept) {
  StoreOptions options = Continuing();
  options.heartbeat_timeout = std::chrono::seconds(3);
  auto store = Serving(options, log_);
  ASSERT_NE(store, nullptr);
  const auto suspected = [&](uint32_t i) {
    return log_->Has("replica " + cluster_.endpoint(i) + " is suspected");
  };
  cluster_.SignalReplica(0, SIGSTOP);
  cluster_.SignalReplica(2, SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return suspected(0) && suspected(2); }));
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  cluster_.SignalReplica(0, SIGCONT);
  cluster_.SignalReplica(2, SIGCONT);
  EXPECT_TRUE(Eventually(
      [&] { return log_->Has("replica " + cluster_.endpoint(2) + " answers requests again"); }));
  EXPECT_FALSE(log_->Has("stopped answering"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A primary that waits for a replica has no queues by which its heartbeat could move.
TEST_F(ShrunkenGroupTest, APrimaryThatWaitsForAReplicaIsNotTakenForDead) {
  StoreOptions waiting = Continuing();
  waiting.min_replicas = 3;
  auto store = Serving(waiting, log_);
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(1);
  EXPECT_THAT(AppendDurably(*store, file_, "two"), StatusIs(Code::kUnavailable));
  StoreOptions other = SecondOptions();
  other.on_replica_failure = OnReplicaFailure::kContinue;
  EXPECT_THAT(Refusal(other), StatusIs(Code::kBusy));
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return AppendDurably(*store, file_, "three").ok(); }));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
