// The store over every datapath, with real processes: the content is the same everywhere, and each
// datapath needs the replicas' processes as documented. All tests share one group, and each leaves
// it in order.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class DatapathTest : public SharedStoreTest, public testing::WithParamInterface<Datapath> {
 protected:
  StoreOptions Chosen() const {
    StoreOptions options = Options();
    options.datapath = GetParam();
    return options;
  }
  bool by_cpu() const {
    return GetParam() == Datapath::kCpuPolling || GetParam() == Datapath::kCpuEvent;
  }
};

std::string NameOfDatapath(const testing::TestParamInfo<Datapath>& param) {
  std::string name(DatapathName(param.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Datapaths, DatapathTest,
                         testing::Values(Datapath::kOffload, Datapath::kFanout,
                                         Datapath::kCpuPolling, Datapath::kCpuEvent),
                         NameOfDatapath);

// While it serves, a replica tells which datapath it is armed with.
TEST_P(DatapathTest, IsShown) {
  auto store = Taken(Chosen());
  ASSERT_NE(store, nullptr);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i)
    EXPECT_EQ(cluster_.ReplicaStatus(i)->datapath, DatapathName(GetParam()));
  ASSERT_OK(store->Close());
  EXPECT_EQ(cluster_.ReplicaStatus(0)->datapath, "");
}

// Writes several laps of the journal ring, so that records are executed (gMEMCPY) and their room is
// reused. The first primary polls, and the second one sleeps until there is an event.
TEST_P(DatapathTest, EveryNodeEndsWithTheSameBytes) {
  StoreOptions options = Chosen();
  options.window = 8;
  std::string all;
  for (int life = 0; life < 2; ++life) {
    options.wait = life == 0 ? WaitMode::kPoll : WaitMode::kEvent;
    auto store = Taken(options);
    ASSERT_NE(store, nullptr);
    if (life == 0) {
      ASSERT_OK(store->Create("f"));
    }
    const auto file = store->Lookup("f");
    ASSERT_OK(file);
    EXPECT_EQ(Content(*store, "f"), all);
    for (int i = 0; i < 1000; ++i) {
      const std::string piece(static_cast<size_t>(400 + i % 300), static_cast<char>('a' + i % 26));
      ASSERT_OK(AppendDurably(*store, *file, piece)) << i;
      all += piece;
    }
    ASSERT_OK(store->Close());
    ExpectEqualRegions();
  }
  EXPECT_GT(all.size(), options.journal_size);
}

// A group may be taken with another datapath than it was last served by.
TEST_P(DatapathTest, TheNextPrimaryMayChooseAnotherDatapath) {
  std::string all;
  for (const Datapath datapath : {GetParam(), Datapath::kOffload, GetParam()}) {
    StoreOptions options = Options();
    options.datapath = datapath;
    auto store = Taken(options);
    ASSERT_NE(store, nullptr);
    if (all.empty()) {
      ASSERT_OK(store->Create("f"));
    }
    EXPECT_EQ(Content(*store, "f"), all);
    ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "some more;"));
    all += "some more;";
    ASSERT_OK(store->Close());
  }
  ExpectEqualRegions();
}

// Where replica CPUs take no part, appends go on with all of them stopped, over many laps of the
// slots and of the ring. Where they do, one that is stopped is named.
TEST_P(DatapathTest, StoppedReplicas) {
  StoreOptions options = Chosen();
  options.window = 8;  // 16 slots
  if (by_cpu()) options.ack_timeout = std::chrono::seconds(2);
  auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "running;"));
  if (by_cpu()) {
    cluster_.SignalReplica(1, SIGSTOP);
    Status status;
    for (int i = 0; i < 300 && status.ok(); ++i) status = AppendDurably(*store, *file, "stopped;");
    EXPECT_THAT(status, StatusIs(Code::kUnavailable, HasSubstr("ack_timeout")));
    EXPECT_THAT(status.message(), HasSubstr("forwards by the replicas' CPUs"));
    EXPECT_THAT(status.message(),
                testing::AllOf(testing::ContainsRegex("out of reach since 20[0-9-]*T[0-9:]*Z: "),
                               HasSubstr("replica " + cluster_.endpoint(1) + " does not answer"),
                               HasSubstr("no acknowledgement of operation"),
                               HasSubstr("hyperloopctl status")));
    EXPECT_THAT(status.message(), testing::Not(HasSubstr(cluster_.endpoint(0) + " does not")));
    cluster_.SignalReplica(1, SIGCONT);
    EXPECT_TRUE(Eventually([&] { return AppendDurably(*store, *file, "running again").ok(); }));
  } else {
    cluster_.SignalAllReplicas(SIGSTOP);
    std::string all = "running;";
    for (int i = 0; i < 3000; ++i) {
      const std::string piece(static_cast<size_t>(400 + i % 300), static_cast<char>('a' + i % 26));
      ASSERT_OK(AppendDurably(*store, *file, piece)) << i;
      all += piece;
    }
    EXPECT_GT(all.size(), options.journal_size);
    // Stopped replicas can be read.
    const auto status = cluster_.ReplicaStatus(1);
    ASSERT_OK(status);
    EXPECT_EQ(status->log_error, "");
    ASSERT_EQ(status->files.size(), 1u);
    EXPECT_EQ(status->files[0].size, all.size());
    cluster_.SignalAllReplicas(SIGCONT);
    EXPECT_EQ(Content(*store, "f"), all);
  }
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// One replica of three is stopped and then continued: waiting appends succeed.
TEST_P(DatapathTest, ABriefStopLosesNothing) {
  auto store = Taken(Chosen());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    cluster_.SignalReplica(1, SIGSTOP);
    std::atomic<bool> called{false};
    std::thread wake([&] {
      Eventually([&] { return called.load(); });
      cluster_.SignalReplica(1, SIGCONT);
    });
    called = true;
    const Status status = AppendDurably(*store, *file, "piece " + std::to_string(i) + ";");
    wake.join();
    ASSERT_OK(status);
    all += "piece " + std::to_string(i) + ";";
  }
  EXPECT_EQ(Content(*store, "f"), all);
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// Before the replicas answer the Seal of a takeover, they have ended the old primary's service.
TEST_P(DatapathTest, ASealedPrimaryWritesNothingMore) {
  auto first = Taken(Chosen());
  ASSERT_NE(first, nullptr);
  const auto file = first->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*first, *file, "of the first;"));
  StoreOptions options = SecondOptions();
  options.datapath = GetParam();
  options.takeover = true;
  auto second = Opened(options);
  ASSERT_NE(second, nullptr);
  TakeResult result;
  ASSERT_OK(second->Take(Request(), &result));
  EXPECT_THAT(AppendDurably(*first, *file, "too late;"), StatusIs(Code::kFenced));
  ASSERT_OK(AppendDurably(*second, *second->Lookup("f"), "of the second;"));
  EXPECT_EQ(Content(*second, "f"), "of the first;of the second;");
  ASSERT_OK(second->Close());
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const auto status = cluster_.ReplicaStatus(i);
    ASSERT_OK(status);
    EXPECT_EQ(status->log_error, "");
    ASSERT_EQ(status->files.size(), 1u);
    EXPECT_EQ(status->files[0].size, std::string("of the first;of the second;").size()) << i;
  }
}

}  // namespace
}  // namespace hyperloop::test
