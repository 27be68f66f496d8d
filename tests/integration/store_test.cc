// The replicated store over real processes: hyperloop-rnicd, three hyperloop-replica, and this
// process as the primary.
#include "hyperloop/replication/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "integration/store_fixture.h"
#include "support/append_durably.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

TEST_F(StoreTest, TakeAndAppend) {
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("000004.log");
  ASSERT_OK(file);
  std::string all;
  for (int i = 0; i < 500; ++i) {
    const std::string piece =
        "record " + std::to_string(i) + std::string(static_cast<size_t>(i % 97), '.');
    ASSERT_OK(AppendDurably(*store, *file, piece));
    all += piece;
  }
  EXPECT_EQ(Content(*store, "000004.log"), all);
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
  // The replicas hold the written bytes.
  const auto status = cluster_.ReplicaStatus(2);
  ASSERT_OK(status);
  EXPECT_EQ(status->log_error, "");
  ASSERT_EQ(status->files.size(), 1u);
  EXPECT_EQ(status->files[0].size, all.size());
  EXPECT_TRUE(status->released);
  EXPECT_EQ(status->lock_word, status->sealed_epoch);
}

TEST_F(StoreTest, LookingTakesNothing) {
  const auto store = Store::Open(Options(), nullptr);
  ASSERT_OK(store);
  EXPECT_FALSE((*store)->taken());
  EXPECT_THAT(AppendDurably(**store, 0, "x"), StatusIs(Code::kInvalidArgument));
  const auto status = cluster_.ReplicaStatus(0);
  ASSERT_OK(status);
  EXPECT_EQ(status->sealed_epoch, 0u);
  EXPECT_FALSE(status->formatted);
  EXPECT_NE(access(Options().pool.c_str(), F_OK), 0) << "looking made a pool";
}

TEST_F(StoreTest, ContentSurvivesAnOrderlyEnd) {
  std::string all;
  for (int life = 0; life < 3; ++life) {
    auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(taken_.files.empty(), life == 0);
    if (life == 0) {
      ASSERT_OK(store->Create("f"));
    }
    EXPECT_EQ(Content(*store, "f"), all);
    const auto file = store->Lookup("f");
    ASSERT_OK(file);
    for (int i = 0; i < 50; ++i) {
      const std::string piece = std::to_string(life) + "/" + std::to_string(i) + ";";
      ASSERT_OK(AppendDurably(*store, *file, piece));
      all += piece;
    }
    ASSERT_OK(store->Close());
  }
  ExpectEqualRegions();
}

// Replica CPUs take no part: with all of them stopped, appends go on over many laps of the slots
// and of the ring.
TEST_F(StoreTest, StoppedReplicasServeManyLaps) {
  StoreOptions options = Options();
  options.window = 8;  // 16 slots
  auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  cluster_.SignalAllReplicas(SIGSTOP);
  std::string all;
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
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(StoreTest, SecondPrimaryIsRefusedAndChangesNothing) {
  auto first = Taken(Options());
  ASSERT_NE(first, nullptr);
  const auto file = first->Create("f");
  ASSERT_OK(file);
  const auto before = cluster_.ReplicaStatus(0);
  ASSERT_OK(before);

  auto second = Opened(SecondOptions());
  ASSERT_NE(second, nullptr);
  TakeResult result;
  const Status refused = second->Take(Request(), &result);
  EXPECT_THAT(refused, StatusIs(Code::kBusy, HasSubstr("process " + std::to_string(getpid()))));
  EXPECT_THAT(refused.message(), HasSubstr("takeover=true"));

  const auto after = cluster_.ReplicaStatus(0);
  ASSERT_OK(after);
  EXPECT_EQ(after->sealed_epoch, before->sealed_epoch);
  EXPECT_EQ(after->owner, before->owner);
  EXPECT_EQ(after->last_seq, before->last_seq);
  EXPECT_OK(AppendDurably(*first, *file, "still mine"));
}

TEST_F(StoreTest, TakeoverFencesTheFormerPrimary) {
  auto first = Taken(Options());
  ASSERT_NE(first, nullptr);
  const auto file = first->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*first, *file, "before"));

  StoreOptions options = SecondOptions();
  options.takeover = true;
  auto second = Taken(options);
  ASSERT_NE(second, nullptr);
  EXPECT_THAT(AppendDurably(*first, *file, "after"), StatusIs(Code::kFenced));
  EXPECT_THAT(AppendDurably(*first, *file, "again"), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Files(), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Sync(), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Truncate(*file, 6), StatusIs(Code::kFenced)) << "which would change nothing";
  EXPECT_THAT(first->Create("g"), StatusIs(Code::kFenced));
  EXPECT_EQ(Content(*second, "f"), "before");
  const auto again = second->Lookup("f");
  ASSERT_OK(again);
  EXPECT_OK(AppendDurably(*second, *again, " and on"));
  first->Close().IgnoreError();  // must not release another owner's group
  EXPECT_OK(AppendDurably(*second, *again, " and on"));
  EXPECT_EQ(Content(*second, "f"), "before and on and on");
  const auto status = cluster_.ReplicaStatus(0);
  ASSERT_OK(status);
  EXPECT_FALSE(status->released);
}

// The former primary appends all the time. Its successor must find every append that was
// acknowledged.
TEST_F(StoreTest, TakeoverUnderLoadLosesNothing) {
  auto owner = Taken(Options());
  ASSERT_NE(owner, nullptr);
  ASSERT_OK(owner->Create("f"));
  size_t expected = 0;
  for (int round = 0; round < 4; ++round) {
    std::atomic<size_t> acked{0};
    Status end;
    std::thread writer([&] {
      const auto file = owner->Lookup("f");
      while (file.ok() && (end = AppendDurably(*owner, *file, "12345678")).ok()) ++acked;
    });
    EXPECT_TRUE(Eventually([&] { return acked > 20; }));
    StoreOptions options = round % 2 == 0 ? SecondOptions() : Options();
    options.takeover = true;
    auto next = Taken(options);
    writer.join();
    ASSERT_NE(next, nullptr);
    EXPECT_THAT(end, StatusIs(Code::kFenced));
    const size_t found = Content(*next, "f").size();
    expected += 8 * acked;
    EXPECT_GE(found, expected) << "acknowledged under an epoch that was over, round " << round;
    EXPECT_LE(found, expected + 8);  // the one in flight
    expected = found;
    owner = std::move(next);
  }
}

TEST_F(StoreTest, ReplicaThatDiedAndCameBackIsReconnected) {
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "one"));
  cluster_.KillReplica(1);
  // The device serves the dead replica's memory until it has noticed.
  Status lost;
  std::string expected = "one";
  EXPECT_TRUE(Eventually([&] {
    const auto start = std::chrono::steady_clock::now();
    lost = AppendDurably(*store, *file, "two");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 4 * Options().ack_timeout);
    if (lost.ok()) expected += "two";
    return !lost.ok();
  }));
  EXPECT_TRUE(lost.code() == Code::kUnavailable || lost.code() == Code::kTimedOut ||
              lost.code() == Code::kAborted)
      << lost.ToString();
  EXPECT_THAT(AppendDurably(*store, *file, "three"),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  EXPECT_TRUE(Eventually([&] { return store->Sync().code() == Code::kUnavailable; }));

  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  EXPECT_OK(AppendDurably(*store, *file, "four"));
  const std::string content = Content(*store, "f");
  EXPECT_TRUE(content == expected + "four" || content == expected + "twofour")
      << content;  // the last "two" is present as a whole or not at all
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(StoreTest, LostRnicDaemonIsABoundedErrorAndReplicasComeBack) {
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "kept"));
  cluster_.KillRnicd();
  EXPECT_THAT(AppendDurably(*store, *file, "lost"),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  EXPECT_THAT(AppendDurably(*store, *file, "lost"),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  store->Close().IgnoreError();
  store.reset();
  cluster_.RestartRnicd();
  store = Opened(Options());
  ASSERT_NE(store, nullptr);
  Status status;
  EXPECT_TRUE(Eventually([&] {
    TakeResult result;
    status = store->Take(Request(), &result);
    return status.code() != Code::kUnavailable && status.code() != Code::kNotFound;
  }));
  ASSERT_OK(status);
  const std::string content = Content(*store, "f");
  EXPECT_TRUE(content == "kept" || content == "keptlost") << content;
}

TEST_F(StoreTest, ReplicaOutOfReachIsNamed) {
  cluster_.KillReplica(2);
  const auto store = Store::Open(Options(), nullptr);
  ASSERT_THAT(store.status(), StatusIs(Code::kUnavailable, HasSubstr(cluster_.endpoint(2))));
}

class StoreRefusalTest : public StoreTest {
 protected:
  void ExpectRefused(const StoreOptions& options, const TakeRequest& request,
                     const std::string& reason) {
    const auto epoch = [this](uint32_t replica) {
      return cluster_.ReplicaStatus(replica)->sealed_epoch;
    };
    const std::array before = {epoch(0), epoch(1), epoch(2)};
    const auto store = Opened(options);
    ASSERT_NE(store, nullptr);
    TakeResult result;
    EXPECT_THAT(store->Take(request, &result), StatusIs(Code::kInvalidArgument, HasSubstr(reason)));
    EXPECT_FALSE(store->taken());
    EXPECT_EQ((std::array{epoch(0), epoch(1), epoch(2)}), before);
  }
  // Takes the group, which may be bound to another directory, and closes the store.
  TakeResult Rebound(StoreOptions options, const TakeRequest& request) {
    options.rebind = true;
    TakeResult result;
    const auto store = Opened(options);
    EXPECT_OK(store->Take(request, &result));
    EXPECT_OK(store->Close());
    return result;
  }
  void MakeGroupWithAFile() {
    const auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
  TakeRequest Foreign() {
    TakeRequest foreign = Request();
    foreign.pairing = {"33333333-3333-4333-8333-333333333333",
                       "44444444-4444-4444-8444-444444444444"};
    return foreign;
  }
  TakeRequest Empty() {
    TakeRequest empty = Request();
    empty.pairing = {};
    empty.directory_empty = true;
    return empty;
  }
};

TEST_F(StoreRefusalTest, RefusalsComeBeforeAnySeal) {
  StoreOptions too_large = Options();
  too_large.journal_size = 1ull << 30;
  ExpectRefused(too_large, Request(), "too small");
  StoreOptions other_size = Options();
  other_size.region_size = 8 << 20;
  ExpectRefused(other_size, Request(), "region_size");
  ExpectRefused(Options(), Foreign(), Foreign().pairing.group);
  TakeRequest outside = Request();
  outside.directory_empty = false;
  ExpectRefused(Options(), outside, "never in group");
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(cluster_.ReplicaStatus(i)->sealed_epoch, 0u);

  ASSERT_NO_FATAL_FAILURE(MakeGroupWithAFile());
  ExpectRefused(Options(), Empty(), "restore=true");
  ExpectRefused(Options(), Foreign(), Foreign().pairing.group);
  // Filling this directory would take the group from another one, which needs rebind=true besides.
  StoreOptions restore = Options();
  restore.restore = true;
  ExpectRefused(restore, Empty(), "rebind=true");
}

// The former directory is refused, unless it is opened with rebind=true too.
TEST_F(StoreRefusalTest, ADirectoryFromWhichTheGroupWasTakenIsRefused) {
  ASSERT_NO_FATAL_FAILURE(MakeGroupWithAFile());
  StoreOptions restore = Options();
  restore.restore = true;
  const TakeResult taken = Rebound(restore, Empty());
  EXPECT_EQ(taken.pairing.group, pairing_.group);
  EXPECT_NE(taken.pairing.database, pairing_.database);
  EXPECT_EQ(taken.files.size(), 1u);
  ExpectRefused(Options(), Request(), "now belongs to database " + taken.pairing.database);
  EXPECT_EQ(Rebound(Options(), Request()).pairing, pairing_);
  TakeRequest usurper = Request();
  usurper.pairing = taken.pairing;
  ExpectRefused(Options(), usurper, "now belongs to database " + pairing_.database);
}

// Does what hyperloopctl reset does. The former directory must not be taken for the emptied
// group's, because its logs would be removed as files that the group does not hold.
TEST_F(StoreTest, FormerDirectoryIsRefusedAfterAReset) {
  {
    auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("000004.log"));
  }
  const TakeRequest former = Request();
  TakeRequest reset;
  reset.directory = "hyperloopctl reset";
  StoreOptions restore = Options();
  restore.restore = restore.rebind = true;
  auto store = Opened(restore);
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(reset, &result));
  ASSERT_OK(store->Remove("000004.log"));
  ASSERT_OK(store->Close());

  store = Opened(Options());
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(store->Take(former, &result),
              StatusIs(Code::kInvalidArgument, HasSubstr("now belongs to database")));
  TakeRequest fresh = former;
  fresh.pairing = {};
  fresh.directory_empty = true;
  EXPECT_OK(store->Take(fresh, &result));
}

// The store then lists no files, and Close reports that it could not release the group: nobody may
// take that for an empty group.
TEST_F(StoreTest, CloseAfterAFailedReconnectSaysSo) {
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  cluster_.KillReplica(1);
  // The device serves the dead replica's memory until it has noticed.
  EXPECT_TRUE(Eventually([&] { return !AppendDurably(*store, *file, "lost").ok(); }));
  EXPECT_TRUE(Eventually([&] { return store->Sync().code() == Code::kUnavailable; }));
  EXPECT_THAT(store->Files(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(store->Lookup("CURRENT"), StatusIs(Code::kUnavailable));
  EXPECT_THAT(store->Close(), StatusIs(Code::kUnavailable));
}

TEST_F(StoreTest, PoolOfAReplicaIsNoPoolForThePrimary) {
  {
    auto store = Taken(Options());
    ASSERT_NE(store, nullptr);
  }
  StoreOptions options = Options();
  options.pool = cluster_.pool(1);
  auto store = Opened(options);
  ASSERT_NE(store, nullptr);
  TakeResult result;
  EXPECT_THAT(store->Take(Request(), &result), StatusIs(Code::kBusy));  // its owner lives
}

TEST_F(StoreTest, ForkedChildCanDoNothing) {
  auto store = Taken(Options());
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool fenced = AppendDurably(*store, *file, "child").code() == Code::kFenced &&
                        !store->taken() && store->Close().code() == Code::kFenced &&
                        store->Files().status().code() == Code::kFenced;
    store.reset();  // releases nothing
    _exit(fenced ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_OK(AppendDurably(*store, *file, "parent"));
  EXPECT_EQ(Content(*store, "f"), "parent");
  EXPECT_FALSE(cluster_.ReplicaStatus(0)->released);
}

}  // namespace
}  // namespace hyperloop::test
