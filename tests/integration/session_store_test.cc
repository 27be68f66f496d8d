// A store from its opening to its end: what looking, taking, closing and being refused changes, and
// what it does not change.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "integration/session_fixture.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class SessionStoreTest : public SessionFixture {
 protected:
  // A primary that takes nothing from one that lives.
  StoreOptions Polite(const std::string& pool = "primary") const {
    StoreOptions options = Options(pool);
    options.takeover = false;
    return options;
  }
  void MakeGroupWithAFile() {
    const auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
};

TEST_F(SessionStoreTest, LookingTakesNothing) {
  const auto store = Opened(Polite());
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(store->taken());
  EXPECT_THAT(AppendDurably(*store, 0, "x"), StatusIs(Code::kInvalidArgument));
  const NodeStatus status = StatusOf(0);
  EXPECT_EQ(status.sealed_epoch, 0u);
  EXPECT_FALSE(status.formatted);
  EXPECT_FALSE(std::filesystem::exists(Options().pool)) << "looking made a pool";
}

TEST_F(SessionStoreTest, ContentSurvivesAnOrderlyEnd) {
  std::string all;
  for (int life = 0; life < 3; ++life) {
    auto store = Opened(Polite());
    ASSERT_NE(store, nullptr);
    TakeResult taken;
    ASSERT_OK(store->Take(Request(), &taken));
    pairing_ = taken.pairing;
    EXPECT_EQ(taken.files.empty(), life == 0);
    if (life == 0) {
      ASSERT_OK(store->Create("f"));
      EXPECT_EQ(Content(*store), "");
    } else {
      EXPECT_EQ(Content(*store), all);
    }
    const auto file = store->Lookup("f");
    ASSERT_OK(file);
    for (int i = 0; i < 200; ++i) {
      const std::string piece = std::to_string(life) + "/" + std::to_string(i) +
                                std::string(static_cast<size_t>(i % 97), '.') + ";";
      ASSERT_OK(AppendDurably(*store, *file, piece));
      all += piece;
    }
    EXPECT_EQ(Content(*store), all);
    ASSERT_OK(store->Close());
    const NodeStatus status = StatusOf(2);
    EXPECT_EQ(status.log_error, "");
    ASSERT_EQ(status.files.size(), 1u);
    EXPECT_EQ(status.files[0].size, all.size());
    EXPECT_TRUE(status.released);
    EXPECT_EQ(status.lock_word, status.sealed_epoch);
    ExpectEqualRegions();
    ExpectPrimaryEqual();
  }
}

TEST_F(SessionStoreTest, SecondPrimaryIsRefusedAndChangesNothing) {
  auto first = Serving(Polite());
  ASSERT_NE(first, nullptr);
  const std::vector<uint64_t> before = Epochs();
  const std::string owner = StatusOf(0).owner;
  const uint64_t last = StatusOf(0).last_seq;
  const Status refused = Refusal(Polite("second"));
  EXPECT_THAT(refused, StatusIs(Code::kBusy, HasSubstr("process " + std::to_string(getpid()))));
  EXPECT_THAT(refused.message(), HasSubstr("takeover=true"));
  EXPECT_EQ(Epochs(), before);
  EXPECT_EQ(StatusOf(0).owner, owner);
  EXPECT_EQ(StatusOf(0).last_seq, last);
  EXPECT_OK(AppendDurably(*first, file_, ", still mine"));
}

TEST_F(SessionStoreTest, TakeoverFencesTheFormerPrimary) {
  auto first = Serving(Options());
  ASSERT_NE(first, nullptr);
  auto second = Taken(Options("second"));
  ASSERT_NE(second, nullptr);
  EXPECT_THAT(AppendDurably(*first, file_, "after"), StatusIs(Code::kFenced));
  EXPECT_THAT(AppendDurably(*first, file_, "again"), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Files(), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Sync(), StatusIs(Code::kFenced));
  EXPECT_THAT(first->Truncate(file_, 3), StatusIs(Code::kFenced)) << "which would change nothing";
  EXPECT_THAT(first->Create("g"), StatusIs(Code::kFenced));
  EXPECT_EQ(Content(*second), "one");
  const auto again = second->Lookup("f");
  ASSERT_OK(again);
  EXPECT_OK(AppendDurably(*second, *again, " and on"));
  first->Close().IgnoreError();  // must not release another owner's group
  EXPECT_OK(AppendDurably(*second, *again, " and on"));
  EXPECT_EQ(Content(*second), "one and on and on");
  EXPECT_FALSE(StatusOf(0).released);
}

// The former primary appends all the time. Its successor must find every append that was
// acknowledged.
TEST_F(SessionStoreTest, TakeoverUnderLoadLosesNothing) {
  auto owner = Taken();
  ASSERT_NE(owner, nullptr);
  ASSERT_OK(owner->Create("f"));
  size_t expected = 0;
  for (int round = 0; round < 8; ++round) {
    std::atomic<size_t> acked{0};
    Status end;
    std::thread writer([&] {
      const auto file = owner->Lookup("f");
      while (file.ok() && (end = AppendDurably(*owner, *file, "12345678")).ok()) ++acked;
    });
    EXPECT_TRUE(Eventually([&] { return acked > 20; }));
    auto next = Taken(Options(round % 2 == 0 ? "second" : "primary"));
    writer.join();
    ASSERT_NE(next, nullptr);
    EXPECT_THAT(end, StatusIs(Code::kFenced));
    const size_t found = Content(*next).size();
    expected += 8 * acked;
    EXPECT_GE(found, expected) << "acknowledged under an epoch that was over, round " << round;
    EXPECT_LE(found, expected + 8);  // the one in flight
    expected = found;
    owner = std::move(next);
  }
}

TEST_F(SessionStoreTest, ReplicaThatDiedAndCameBackIsReconnected) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(2);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  Stop(1);
  const auto lost = AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut));
  EXPECT_THAT(AppendDurably(*store, file_, "two"), lost);
  EXPECT_THAT(AppendDurably(*store, file_, "three"), lost);
  EXPECT_TRUE(Eventually([&] { return store->Sync().code() == Code::kUnavailable; }));
  StartAgain(1);
  EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  EXPECT_TRUE(Insist(*store, "four"));
  const std::string content = Content(*store);
  EXPECT_THAT(content, testing::StartsWith("one"));
  EXPECT_THAT(content, testing::EndsWith("four"));
  ASSERT_OK(store->Close());
  ExpectEqualRegions();
}

// The store then lists no files, and Close reports that it could not release the group: nobody may
// take that for an empty group.
TEST_F(SessionStoreTest, CloseAfterAFailedReconnectSaysSo) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(2);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_FALSE(AppendDurably(*store, file_, "lost").ok());
  EXPECT_TRUE(Eventually([&] { return store->Sync().code() == Code::kUnavailable; }));
  EXPECT_THAT(store->Files(), StatusIs(Code::kUnavailable));
  EXPECT_THAT(store->Lookup("CURRENT"), StatusIs(Code::kUnavailable));
  EXPECT_THAT(store->Close(), StatusIs(Code::kUnavailable));
}

TEST_F(SessionStoreTest, ReplicaOutOfReachIsNamedWithAWayOut) {
  StoreOptions impatient = Options();
  impatient.connect_timeout = std::chrono::seconds(1);
  StandStill(1);
  EXPECT_THAT(
      Refusal(impatient),
      StatusIs(Code::kTimedOut, AllOf(HasSubstr(AddressOf(1)), HasSubstr("hyperloopctl status"))));
  GoOn(1);
  Stop(2);
  EXPECT_THAT(TryOpen(Options()).status(), StatusIs(Code::kUnavailable, HasSubstr(AddressOf(2))));
}

TEST_F(SessionStoreTest, PoolOfAReplicaIsNoPoolForThePrimary) {
  ASSERT_OK(Taken()->Close());
  EXPECT_THAT(Refusal(Options("r1")), StatusIs(Code::kBusy));  // its owner lives
}

TEST_F(SessionStoreTest, ForkedChildCanDoNothing) {
  auto store = Taken();
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
  EXPECT_EQ(Content(*store), "parent");
  EXPECT_FALSE(StatusOf(0).released);
}

// --- refused before any seal

class SessionRefusalTest : public SessionStoreTest {
 protected:
  void ExpectRefused(const StoreOptions& options, const TakeRequest& request,
                     const std::string& reason) {
    const std::vector<uint64_t> before = Epochs();
    const auto store = Opened(options);
    ASSERT_NE(store, nullptr);
    TakeResult result;
    EXPECT_THAT(store->Take(request, &result), StatusIs(Code::kInvalidArgument, HasSubstr(reason)));
    EXPECT_FALSE(store->taken());
    EXPECT_EQ(Epochs(), before);
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
  TakeRequest Foreign() const {
    TakeRequest foreign = Request();
    foreign.pairing = {"33333333-3333-4333-8333-333333333333",
                       "44444444-4444-4444-8444-444444444444"};
    return foreign;
  }
  TakeRequest Empty() const {
    TakeRequest empty = Request();
    empty.pairing = {};
    empty.directory_empty = true;
    return empty;
  }
};

TEST_F(SessionRefusalTest, RefusalsComeBeforeAnySeal) {
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
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Hello(i).sealed_epoch, 0u);

  ASSERT_NO_FATAL_FAILURE(MakeGroupWithAFile());
  ExpectRefused(Options(), Empty(), "restore=true");
  ExpectRefused(Options(), Foreign(), Foreign().pairing.group);
  // Filling this directory would take the group from another one, which needs rebind=true besides.
  StoreOptions restore = Options();
  restore.restore = true;
  ExpectRefused(restore, Empty(), "rebind=true");
}

// The former directory is refused, unless it is opened with rebind=true too.
TEST_F(SessionRefusalTest, ADirectoryFromWhichTheGroupWasTakenIsRefused) {
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
TEST_F(SessionRefusalTest, FormerDirectoryIsRefusedAfterAReset) {
  ASSERT_NO_FATAL_FAILURE(MakeGroupWithAFile());
  const TakeRequest former = Request();
  TakeRequest reset;
  reset.directory = "hyperloopctl reset";
  StoreOptions restore = Options();
  restore.restore = restore.rebind = true;
  auto store = Opened(restore);
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(reset, &result));
  ASSERT_OK(store->Remove("f"));
  ASSERT_OK(store->Close());

  ExpectRefused(Options(), former, "now belongs to database");
  EXPECT_OK(Refusal(Options(), Empty()));
}

TEST_F(SessionRefusalTest, APartOfTheReplicasIsNotTheGroup) {
  ASSERT_OK(Serving(Options())->Close());
  const std::vector<uint64_t> before = Epochs();
  const auto refused = [&](const std::vector<size_t>& listed, bool takeover, bool restore) {
    StoreOptions options = Options("second");
    options.replicas.clear();
    for (const size_t i : listed) options.replicas.push_back(AddressOf(i));
    options.takeover = takeover;
    options.restore = options.rebind = restore;
    const Status status = Refusal(options, restore ? Empty() : Request());
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(AddressOf(0)), HasSubstr(AddressOf(1)), HasSubstr(AddressOf(2))));
  };
  for (const bool takeover : {false, true}) {
    for (const bool restore : {false, true}) {
      refused({0}, takeover, restore);
      refused({2}, takeover, restore);
      refused({1, 2}, takeover, restore);
      refused({0, 1}, takeover, restore);
    }
  }
  EXPECT_EQ(Epochs(), before);
  StoreOptions turned = Options();
  std::swap(turned.replicas[0], turned.replicas[2]);
  auto store = Taken(turned);  // all of them, in another order
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "one");
}

// The log, which a majority acknowledged, also records who belongs to the group.
TEST_F(SessionRefusalTest, NodesThatForgetAReplicaOfTheLogAreRefused) {
  ASSERT_OK(Serving(Options())->Close());
  for (size_t i = 0; i < 2; ++i) {
    Stop(i);
    const auto pool = Pool::Open(folder_ + "/r" + std::to_string(i));
    ASSERT_OK(pool);
    auto state = ReadNodeState((*pool)->node_page());
    ASSERT_OK(state);
    ASSERT_EQ(state->installed.replicas.size(), 3u);
    state->installed.replicas.pop_back();
    ASSERT_OK(WriteNodeState((*pool)->node_page(), &*state));
  }
  StartAllAgain();
  const std::vector<uint64_t> before = Epochs();
  listed_ = 2;
  EXPECT_THAT(Refusal(Options()),
              StatusIs(Code::kCorruption,
                       AllOf(HasSubstr("the nodes name other replicas than the log itself"),
                             HasSubstr(AddressOf(2)))));
  EXPECT_EQ(Epochs(), before);
}

// A change needs all replicas that stay, even where a majority could go on without them.
TEST_F(SessionRefusalTest, NothingChangesWhileAReplicaIsAway) {
  without_some_ = true;
  ASSERT_OK(Serving(Options())->Close());
  replicas_.push_back(StartReplica(3));
  Stop(1);
  const auto sealed = [&] {
    return std::array{Hello(0).sealed_epoch, Hello(2).sealed_epoch, Hello(3).sealed_epoch};
  };
  const auto before = sealed();
  StoreOptions adding = Options();
  adding.replicas.push_back(AddressOf(3));
  adding.add_replica = AddressOf(3);
  EXPECT_THAT(Refusal(adding).message(), HasSubstr("change only while all of them are there"));
  StoreOptions removing = Options();
  removing.replicas.resize(2);
  removing.remove_replica = AddressOf(2);
  EXPECT_THAT(Refusal(removing).message(), HasSubstr("only 1 of the group's 3 replicas"));
  EXPECT_EQ(sealed(), before);
  StartAgain(1);
  auto store = Taken(adding);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), "one");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

}  // namespace
}  // namespace hyperloop::test
