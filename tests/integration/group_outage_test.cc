// Tests, with real processes, what a primary's callers see during a short outage of its group, and
// while others begin to take the group and stop half-way; and what is refused before anything
// changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "common/group_error.h"
#include "control/client.h"
#include "hyperloop/identity/keys.h"
#include "integration/serving_fixture.h"
#include "layout/region_layout.h"
#include "pool/pool.h"
#include "support/log_lines.h"
#include "support/rival_seal.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class GroupOutageTest : public ServingTest {
 protected:
  // The primary's callers must not notice any outage here, however slow the machine is.
  StoreOptions Patient() const {
    StoreOptions options = Options();
    options.ack_timeout = std::chrono::seconds(60);
    return options;
  }

  struct State {
    std::vector<uint64_t> sealed, installed;
    bool operator==(const State&) const = default;
  };
  State StateOfReplicas() const {
    State state;
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      const auto status = cluster_.ReplicaStatus(i);
      EXPECT_OK(status);
      if (!status.ok()) continue;
      state.sealed.push_back(status->sealed_epoch);
      state.installed.push_back(status->installed_epoch);
    }
    return state;
  }

  std::unique_ptr<control::ControlClient> ControlOf(uint32_t i) const {
    const auto endpoint = control::ParseEndpoint(cluster_.endpoint(i));
    EXPECT_OK(endpoint);
    const auto trust = control::Trust::Load(Options().keys, nullptr);
    EXPECT_OK(trust);
    auto client = control::ControlClient::Connect(*endpoint, *trust, std::chrono::seconds(20));
    EXPECT_OK(client);
    return client.ok() ? std::move(client).value() : nullptr;
  }
  // The Seal that a candidate sends to replica i and then dies or stops.
  control::SealRequestT SealOf(uint32_t i) const {
    const auto hello = ControlOf(i)->Call<control::HelloReplyT>(control::HelloRequestT{},
                                                                std::chrono::seconds(20));
    EXPECT_OK(hello);
    return RivalSeal(*hello);
  }
  void SealForTheDead(uint32_t i) const {
    EXPECT_OK(
        ControlOf(i)->Call<control::SealReplyT>(SealOf(i), std::chrono::seconds(20)).status());
  }

  void ExpectServes(Store& store) {
    EXPECT_OK(AppendDurably(store, file_, "two"));
    EXPECT_EQ(Content(store, "f"), "onetwo");
    EXPECT_OK(store.Create("g").status());
    EXPECT_OK(store.Close());
    ExpectEqualRegions();
  }
};

// --- short outages

TEST_F(GroupOutageTest, RestartedReplicaIsNotSeen) {
  for (uint32_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    auto store = Serving(Patient());
    ASSERT_NE(store, nullptr);
    cluster_.KillReplica(i);
    ASSERT_OK(cluster_.Restart());
    ExpectServes(*store);
    store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Remove("f"));
    EXPECT_OK(store->Remove("g"));
  }
}

TEST_F(GroupOutageTest, RestartedRnicDaemonIsNotSeen) {
  auto store = Serving(Patient());
  ASSERT_NE(store, nullptr);
  cluster_.KillRnicd();
  cluster_.RestartRnicd();
  ExpectServes(*store);
}

// The daemon's socket is gone for a while, as when a package is upgraded.
TEST_F(GroupOutageTest, AppendWaitsForAnRnicDaemonThatIsNotThereYet) {
  auto store = Serving(Patient());
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
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The replica's process forwards, with this datapath, and stands still.
TEST_F(GroupOutageTest, AWriteThatTimesOutNamesTheReplicaSinceWhenAndWhatShowsMore) {
  StoreOptions options = Options();
  options.datapath = Datapath::kCpuEvent;
  options.ack_timeout = std::chrono::seconds(2);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  cluster_.SignalReplica(1, SIGSTOP);
  const Status failed = AppendDurably(*store, file_, "two");
  EXPECT_THAT(failed,
              StatusIs(Code::kUnavailable,
                       AllOf(testing::ContainsRegex("out of reach since 20[0-9-]*T[0-9:]*Z: "),
                             HasSubstr("replica " + cluster_.endpoint(1) + " does not answer"),
                             HasSubstr("no acknowledgement of operation"),
                             HasSubstr("hyperloopctl status"))));
  EXPECT_THAT(failed.message(), testing::Not(HasSubstr(cluster_.endpoint(0) + " does not")));
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_OK(store->Close());
}

// The call is under way when the replica dies.
TEST_F(GroupOutageTest, ReplicaThatDiesUnderLoadIsNotSeen) {
  auto store = Serving(Patient());
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

// Without any append the primary still uses its new RNIC, and nobody else gets the group.
TEST_F(GroupOutageTest, IdlePrimaryOutlivesItsRnicDaemon) {
  auto store = Serving(Patient());
  ASSERT_NE(store, nullptr);
  cluster_.KillRnicd();
  cluster_.RestartRnicd();
  auto second = Opened(SecondOptions());
  ASSERT_NE(second, nullptr);
  Status refused;
  TakeResult result;
  // As long as the replicas have no RNIC themselves, they can only say so.
  EXPECT_TRUE(Eventually([&] {
    refused = second->Take(Request(), &result);
    return !IsGroupError(refused.code()) && refused.code() != Code::kNotFound;
  }));
  EXPECT_THAT(refused, StatusIs(Code::kBusy));
  ExpectServes(*store);
}

TEST_F(GroupOutageTest, BrokenGroupComesBackWithoutBeingAsked) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(3);
  const auto log = std::make_shared<LogLines>();
  auto store = Serving(options, log);
  ASSERT_NE(store, nullptr);
  cluster_.KillReplica(1);
  EXPECT_TRUE(Eventually([&] { return !AppendDurably(*store, file_, "two").ok(); }));
  log->Clear();
  ASSERT_OK(cluster_.Restart());
  EXPECT_TRUE(Eventually([&] { return log->Has("the group is back"); }));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_THAT(Content(*store, "f"), testing::StartsWith("one"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Primary and replicas change to a new key while the group serves, and the old key is useless
// afterwards.
TEST_F(GroupOutageTest, KeysChangeWithoutStoppingTheGroup) {
  auto store = Serving(Patient());
  ASSERT_NE(store, nullptr);
  const std::string keys = Options().keys, made = cluster_.folder() + "/new";
  const auto before = identity::KeyRing::Load(keys);
  ASSERT_OK(before);
  ASSERT_OK(identity::MakeIdentity(made, (*before)->name()));
  std::filesystem::copy(keys, cluster_.folder() + "/old");
  const auto after = identity::KeyRing::Load(made);
  ASSERT_OK(after);
  ASSERT_OK(
      identity::Trust(made, {(*after)->name(), (*after)->public_key(), identity::kEveryRole, ""}));
  std::filesystem::rename(made + "/trusted", keys + "/trusted");
  std::filesystem::rename(made + "/identity", keys + "/identity");
  cluster_.KillReplica(1);
  ASSERT_OK(cluster_.Restart());
  StoreOptions old = SecondOptions();
  old.keys = cluster_.folder() + "/old";
  EXPECT_THAT(Store::Open(old, nullptr), StatusIs(Code::kPermissionDenied));
  old.on_replica_failure = OnReplicaFailure::kContinue;
  EXPECT_THAT(Store::Open(old, nullptr), StatusIs(Code::kPermissionDenied));
  // The replicas refuse it, also those that served all the time.
  ASSERT_OK(identity::Trust(old.keys,
                            {(*after)->name(), (*after)->public_key(), identity::kEveryRole, ""}));
  const auto with_old = control::Trust::Load(old.keys, nullptr);
  ASSERT_OK(with_old);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const auto endpoint = control::ParseEndpoint(cluster_.endpoint(i));
    const auto client =
        control::ControlClient::Connect(*endpoint, *with_old, std::chrono::seconds(20));
    ASSERT_OK(client.status());
    const auto refused =
        (*client)->Call<control::HelloReplyT>(control::HelloRequestT{}, std::chrono::seconds(20));
    EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied)) << i;
    EXPECT_THAT(refused.status().message(), testing::HasSubstr("is not trusted there")) << i;
  }
  ExpectServes(*store);
}

// --- takings that are cut short

TEST_F(GroupOutageTest, SealsThatNobodyInstallsAreOvertaken) {
  for (uint32_t count = 1; count <= 3; ++count) {
    SCOPED_TRACE(count);
    auto store = Serving(Patient());
    ASSERT_NE(store, nullptr);
    for (uint32_t i = 0; i < count; ++i) SealForTheDead(2 - i);
    ExpectServes(*store);
    store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Remove("f"));
    EXPECT_OK(store->Remove("g"));
  }
}

TEST_F(GroupOutageTest, ReplicaThatWasStoppedDoesNotCarryOutAStaleSeal) {
  auto store = Serving(Patient());
  ASSERT_NE(store, nullptr);
  const State before = StateOfReplicas();
  const control::SealRequestT seal = SealOf(1);
  auto client = ControlOf(1);
  ASSERT_NE(client, nullptr);
  // The connection must be there before the replica stops; its answer shows that it is.
  ASSERT_OK(client->Call<control::HelloReplyT>(control::HelloRequestT{}, std::chrono::seconds(20))
                .status());
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_THAT(client->Call<control::SealReplyT>(seal, std::chrono::milliseconds(50)),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));  // gives up
  cluster_.SignalReplica(1, SIGCONT);
  // A later request is answered after all earlier ones.
  SealOf(1);
  EXPECT_TRUE(StateOfReplicas() == before);
  ExpectServes(*store);
}

// A candidate cannot seal a stopped replica, and gives back the replicas that it sealed before.
TEST_F(GroupOutageTest, TakeoverThatCannotReachAllLeavesThePrimaryServing) {
  auto store = Serving(Patient());
  ASSERT_NE(store, nullptr);
  StoreOptions options = SecondOptions();
  options.takeover = true;
  options.connect_timeout = std::chrono::seconds(2);
  auto second = Opened(options);
  ASSERT_NE(second, nullptr);
  cluster_.SignalReplica(2, SIGSTOP);
  TakeResult result;
  EXPECT_THAT(second->Take(Request(), &result),
              testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  cluster_.SignalReplica(2, SIGCONT);
  ExpectServes(*store);
}

// --- judged first

TEST_F(GroupOutageTest, RefusedJudgementLeavesThePrimaryServing) {
  for (const int refuse_at : {1, 2}) {
    SCOPED_TRACE(refuse_at);
    auto store = Serving(Patient());
    ASSERT_NE(store, nullptr);
    const State before = StateOfReplicas();
    StoreOptions options = SecondOptions();
    options.takeover = true;
    auto second = Opened(options);
    ASSERT_NE(second, nullptr);
    int calls = 0;
    TakeRequest request = Request();
    request.judge = [&](const GroupFiles& files) -> Status {
      const std::vector<FileInfo> found = files.Files();
      EXPECT_EQ(found.size(), 1u);
      std::string content(16, '\0');
      const auto got = files.Read(found[0].id, 0, content);
      EXPECT_EQ(content.substr(0, got.ok() ? *got : 0), "one");
      if (++calls < refuse_at) return {};
      return InvalidArgument("000012.sst is missing");
    };
    TakeResult result;
    EXPECT_THAT(second->Take(request, &result).message(), HasSubstr("000012.sst is missing"));
    EXPECT_EQ(calls, refuse_at);
    if (refuse_at == 1) {
      EXPECT_TRUE(StateOfReplicas() == before) << "sealed before it was judged";
    }
    ExpectServes(*store);
    store = Taken(Options());
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Remove("f"));
    EXPECT_OK(store->Remove("g"));
  }
}

TEST_F(GroupOutageTest, APartOfTheReplicasIsNotTheGroup) {
  { ASSERT_NE(Serving(Options()), nullptr); }
  const State before = StateOfReplicas();
  const auto refused = [&](std::vector<uint32_t> listed, bool takeover, bool restore) {
    StoreOptions options = SecondOptions();
    options.replicas.clear();
    for (const uint32_t i : listed) options.replicas.push_back(cluster_.endpoint(i));
    options.takeover = takeover;
    options.restore = options.rebind = restore;
    auto store = Opened(options);
    ASSERT_NE(store, nullptr);
    TakeRequest request = Request();
    if (restore) {
      request.pairing = {};
      request.directory_empty = true;
    }
    TakeResult result;
    const Status status = store->Take(request, &result);
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument));
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(cluster_.endpoint(0)), HasSubstr(cluster_.endpoint(1)),
                      HasSubstr(cluster_.endpoint(2))));
  };
  for (const bool takeover : {false, true}) {
    for (const bool restore : {false, true}) {
      refused({0}, takeover, restore);
      refused({2}, takeover, restore);
      refused({1, 2}, takeover, restore);
      refused({0, 1}, takeover, restore);
    }
  }
  EXPECT_TRUE(StateOfReplicas() == before);
  StoreOptions turned = Options();
  std::swap(turned.replicas[0], turned.replicas[2]);
  auto store = Taken(turned);  // all of them, in another order
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store, "f"), "one");
}

TEST_F(GroupOutageTest, OpenNamesAStoppedReplicaAndAWayOut) {
  StoreOptions options = Options();
  options.connect_timeout = std::chrono::seconds(2);
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_THAT(Store::Open(options, nullptr),
              StatusIs(Code::kTimedOut,
                       AllOf(HasSubstr(cluster_.endpoint(1)), HasSubstr("hyperloopctl status"))));
  cluster_.SignalReplica(1, SIGCONT);
}

// The log, which a majority acknowledged, also records who belongs to the group.
TEST_F(GroupOutageTest, NodesThatForgetAReplicaOfTheLogAreRefused) {
  { ASSERT_NE(Serving(Options()), nullptr); }
  for (uint32_t i = 0; i < 2; ++i) {
    cluster_.KillReplica(i);
    const auto pool = Pool::Open(cluster_.pool(i));
    ASSERT_OK(pool);
    auto state = ReadNodeState((*pool)->node_page());
    ASSERT_OK(state);
    ASSERT_EQ(state->installed.replicas.size(), 3u);
    state->installed.replicas.pop_back();
    ASSERT_OK(WriteNodeState((*pool)->node_page(), &*state));
  }
  ASSERT_OK(cluster_.Restart());
  const State before = StateOfReplicas();
  StoreOptions options = Options();
  options.replicas.pop_back();
  auto store = Opened(options);
  ASSERT_NE(store, nullptr);
  TakeResult result;
  EXPECT_THAT(store->Take(Request(), &result),
              StatusIs(Code::kCorruption,
                       AllOf(HasSubstr("the nodes name other replicas than the log itself"),
                             HasSubstr(cluster_.endpoint(2)))));
  EXPECT_TRUE(StateOfReplicas() == before);
}

}  // namespace
}  // namespace hyperloop::test
