// What a primary's callers see during a short outage of its group, and while others begin to take
// the group and stop half-way.

#include <filesystem>
#include <thread>

#include "hyperloop/identity/keys.h"
#include "integration/session_fixture.h"
#include "support/append_loop.h"
#include "support/rival_seal.h"

namespace hyperloop::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

class SessionOutageTest : public SessionFixture {
 protected:
  void ExpectServes(Store& store) {
    EXPECT_OK(AppendDurably(store, file_, "two"));
    EXPECT_EQ(Content(store), "onetwo");
    EXPECT_OK(store.Create("g").status());
    EXPECT_OK(store.Close());
    ExpectEqualRegions();
  }
  // The group is empty again.
  void RemoveFiles() {
    const auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Remove("f"));
    EXPECT_OK(store->Remove("g"));
  }
  void SealForTheDead(size_t i) { Ask<control::SealReplyT>(i, RivalSeal(Hello(i))); }
};

// --- short outages

TEST_F(SessionOutageTest, RestartedReplicaIsNotSeen) {
  for (size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    auto store = Serving(Options());
    ASSERT_NE(store, nullptr);
    Stop(i);
    StartAgain(i);
    ExpectServes(*store);
    RemoveFiles();
  }
}

TEST_F(SessionOutageTest, RestartedRnicIsNotSeen) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  RestartRnic();
  ExpectServes(*store);
}

TEST_F(SessionOutageTest, ALostRnicIsABoundedErrorAndTheNextPrimaryFindsTheGroup) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(2);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  no_device_ = true;
  RestartRnic();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(AppendDurably(*store, file_, "lost"),
                AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
  }
  store->Close().IgnoreError();
  store.reset();
  no_device_ = false;
  Status status;
  EXPECT_TRUE(Eventually([&] {
    store = Opened(Options());
    TakeResult result;
    status = store->Take(Request(), &result);
    return status.code() != Code::kUnavailable && status.code() != Code::kNotFound;
  }));
  ASSERT_OK(status);
  EXPECT_THAT(Content(*store), AnyOf("one", "onelost"));
}

// A primary that cannot serve does not keep the group from one that can.
TEST_F(SessionOutageTest, APrimaryWithoutItsRnicNoLongerLooksAlive) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(1);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  no_device_ = true;
  RestartRnic();
  StoreOptions other = Options("second");
  other.takeover = false;
  const auto second = OpenSession(other, EmbeddedReplica::OpenerOf(rnic_, "second"), log_);
  ASSERT_OK(second);
  TakeResult result;
  EXPECT_TRUE(Eventually([&] { return (*second)->Take(Request(), &result).ok(); }));
  no_device_ = false;
  EXPECT_TRUE(
      Eventually([&] { return AppendDurably(*store, file_, "two").code() == Code::kFenced; }));
  EXPECT_EQ(Content(**second), "one");
}

// The calls are under way when the replicas die.
TEST_F(SessionOutageTest, ReplicasThatDieUnderLoadAreNotSeen) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  AppendLoop load(*store, file_);
  for (size_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(load.Advances());
    Stop(round);
    StartAgain(round);
  }
  EXPECT_TRUE(load.Advances());
  EXPECT_OK(load.Stop());
  EXPECT_EQ(Content(*store).size(), 3 + load.bytes());
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Without any append the primary still uses its new RNIC, and nobody else gets the group.
TEST_F(SessionOutageTest, IdlePrimaryOutlivesItsRnic) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  RestartRnic();
  StoreOptions polite = Options("second");
  polite.takeover = false;
  Status refused;
  // As long as the replicas have no RNIC themselves, they can only say so.
  EXPECT_TRUE(Eventually([&] {
    refused = Refusal(polite);
    return refused.code() != Code::kUnavailable && refused.code() != Code::kNotFound;
  }));
  EXPECT_THAT(refused, StatusIs(Code::kBusy));
  ExpectServes(*store);
}

TEST_F(SessionOutageTest, BrokenGroupComesBackWithoutBeingAsked) {
  StoreOptions options = Options();
  options.ack_timeout = std::chrono::seconds(2);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_FALSE(AppendDurably(*store, file_, "two").ok());
  log_->Clear();
  StartAgain(1);
  EXPECT_TRUE(Eventually([&] { return log_->Has("the group is back"); }));
  EXPECT_TRUE(Insist(*store, "three"));
  EXPECT_THAT(Content(*store), testing::StartsWith("one"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// --- keys

class SessionKeysTest : public SessionOutageTest {
 protected:
  // All hosts have the same keys.
  SessionKeysTest() {
    keys_ = folder_ + "/keys";
    MakeKeys(keys_, "host");
    for (size_t i = 0; i < 3; ++i) {
      Stop(i);
      StartAgain(i);
    }
  }
  // A key that is trusted where it is.
  static void MakeKeys(const std::string& directory, const std::string& name) {
    ASSERT_OK(identity::MakeIdentity(directory, name));
    TrustKeyOf(directory, directory);
  }
  static void TrustKeyOf(const std::string& other, const std::string& directory) {
    const auto ring = identity::KeyRing::Load(other);
    ASSERT_OK(ring);
    ASSERT_OK(identity::Trust(directory,
                              {(*ring)->name(), (*ring)->public_key(), identity::kEveryRole, ""}));
  }
};

// Primary and replicas change to a new key while the group serves, and the old key is useless
// afterwards.
TEST_F(SessionKeysTest, KeysChangeWithoutStoppingTheGroup) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  const std::string made = folder_ + "/new", old = folder_ + "/old";
  MakeKeys(made, "host");
  std::filesystem::copy(keys_, old);
  std::filesystem::rename(made + "/trusted", keys_ + "/trusted");
  std::filesystem::rename(made + "/identity", keys_ + "/identity");
  Stop(1);
  StartAgain(1);
  StoreOptions with_old = Options("second");
  with_old.keys = old;
  EXPECT_THAT(TryOpen(with_old), StatusIs(Code::kPermissionDenied));
  with_old.on_replica_failure = OnReplicaFailure::kContinue;
  EXPECT_THAT(TryOpen(with_old), StatusIs(Code::kPermissionDenied));
  // The replicas refuse it, also those that served all the time.
  TrustKeyOf(keys_, old);
  const auto trust = control::Trust::Load(old, nullptr);
  ASSERT_OK(trust);
  for (size_t i = 0; i < 3; ++i) {
    const auto endpoint = control::ParseEndpoint(AddressOf(i));
    const auto client = control::ControlClient::Connect(*endpoint, *trust, kAnswers);
    ASSERT_OK(client.status());
    const auto refused = (*client)->Call<control::HelloReplyT>(control::HelloRequestT{}, kAnswers);
    EXPECT_THAT(refused, StatusIs(Code::kPermissionDenied)) << i;
    EXPECT_THAT(refused.status().message(), HasSubstr("is not trusted there")) << i;
  }
  ExpectServes(*store);
}

// --- one replica's answer is not waited for with another one's

TEST_F(SessionOutageTest, ATakingAsksAllReplicasAtTheSameTime) {
  ASSERT_OK(Serving(Options())->Close());
  for (const Body type :
       {Body::HelloRequest, Body::ExamineRequest, Body::AttachRequest, Body::PrepareMemberRequest,
        Body::ConnectMemberRequest, Body::ReleaseRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    arrived_ = 0;
    together_ = type;
    const auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_OK(store->Close());
    together_ = Body::NONE;
  }
}

TEST_F(SessionOutageTest, AGroupIsBroughtBackByAskingAllReplicasAtTheSameTime) {
  for (const Body type : {Body::HelloRequest, Body::ReconnectRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    auto store = Serving(Options());
    ASSERT_NE(store, nullptr);
    arrived_ = 0;
    together_ = type;
    RestartRnic();
    ExpectServes(*store);
    together_ = Body::NONE;
    RemoveFiles();
  }
}

TEST_F(SessionOutageTest, WhatTheOwnPoolHasIsNotReadFromTheReplicas) {
  ASSERT_OK(Serving(Options())->Close());
  bool read = false;
  before_reading_ = [&read] { read = true; };
  const auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(read);
  EXPECT_EQ(Content(*store), "one");
}

// --- takings that are cut short

TEST_F(SessionOutageTest, SealsThatNobodyInstallsAreOvertaken) {
  for (size_t count = 1; count <= 3; ++count) {
    SCOPED_TRACE(count);
    auto store = Serving(Options());
    ASSERT_NE(store, nullptr);
    for (size_t i = 0; i < count; ++i) SealForTheDead(2 - i);
    ExpectServes(*store);
    RemoveFiles();
  }
}

TEST_F(SessionOutageTest, ReplicaThatStoodStillDoesNotCarryOutAStaleSeal) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  const std::vector<uint64_t> before = Epochs();
  const control::SealRequestT seal = RivalSeal(Hello(1));
  const auto endpoint = control::ParseEndpoint(AddressOf(1));
  const auto client = control::ControlClient::Connect(*endpoint, control::Trust(), kAnswers);
  ASSERT_OK(client);
  // The connection must be there before the replica stands still; its answer shows that it is.
  ASSERT_OK((*client)->Call<control::HelloReplyT>(control::HelloRequestT{}, kAnswers).status());
  // It stands still in the middle of another request.
  StandStill(1);
  std::thread other([&] { Hello(1); });
  EXPECT_TRUE(Eventually([&] { return waiting_[1] != 0; }));
  EXPECT_THAT((*client)->Call<control::SealReplyT>(seal, std::chrono::milliseconds(50)),
              AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));  // gives up
  GoOn(1);
  other.join();
  // A later request is answered after all earlier ones.
  Hello(1);
  EXPECT_EQ(Epochs(), before);
  ExpectServes(*store);
}

// A candidate cannot seal a replica that stands still, and gives back the replicas that it sealed
// before.
TEST_F(SessionOutageTest, TakeoverThatCannotReachAllLeavesThePrimaryServing) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  StoreOptions options = Options("second");
  options.connect_timeout = options.ack_timeout = std::chrono::seconds(2);
  for (const bool answers_at_first : {false, true}) {
    SCOPED_TRACE(answers_at_first);
    auto second = Opened(options);
    ASSERT_NE(second, nullptr);
    if (answers_at_first) {
      sealing_ = 2;
    } else {
      StandStill(2);
    }
    TakeResult result;
    EXPECT_THAT(second->Take(Request(), &result),
                AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
    GoOn(2);
    FinishSealing();
  }
  ExpectServes(*store);
}

// --- judged first

TEST_F(SessionOutageTest, RefusedJudgementLeavesThePrimaryServing) {
  for (const int refuse_at : {1, 2}) {
    SCOPED_TRACE(refuse_at);
    auto store = Serving(Options());
    ASSERT_NE(store, nullptr);
    const std::vector<uint64_t> before = Epochs();
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
    EXPECT_THAT(Refusal(Options("second"), request).message(), HasSubstr("000012.sst is missing"));
    EXPECT_EQ(calls, refuse_at);
    if (refuse_at == 1) {
      EXPECT_EQ(Epochs(), before) << "sealed before it was judged";
    }
    ExpectServes(*store);
    RemoveFiles();
  }
}

// These replicas take no files, so nobody knows which they hold.
TEST_F(SessionOutageTest, ARefusedRemovalNamesTheReplicasThatCouldNotBeAsked) {
  ASSERT_OK(Serving(Options())->Close());
  remove_replica_ = AddressOf(2);
  listed_ = 2;
  TakeRequest request = Request();
  request.judge = [](const GroupFiles& files) -> Status {
    return files.Scarce({"000007.sst", 1, 1}) ? InvalidArgument("too few hold it") : Status();
  };
  EXPECT_THAT(Refusal(Options(), request).message(),
              testing::AllOf(HasSubstr("too few hold it; could not be asked which files it holds"),
                             HasSubstr(AddressOf(0)), HasSubstr(AddressOf(1))));
  remove_replica_.clear();
  listed_ = 3;
  ASSERT_NE(Taken(), nullptr);
}

}  // namespace
}  // namespace hyperloop::test
