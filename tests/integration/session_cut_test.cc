// A taking of a group is stopped at each of its messages in turn. The next taking always succeeds,
// finds every acknowledged append, and makes all regions equal.

#include "integration/session_fixture.h"
#include "membership/standing.h"
#include "support/rival_seal.h"

namespace hyperloop::test {
namespace {

class SessionCutTest : public SessionFixture {
 protected:
  static void RemoveLastRecord(std::span<std::byte> region) {
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    uint64_t last = 0;
    ASSERT_OK(ScanLog(region, info, 0, [&](const RecordView&, uint64_t at) {
      last = at;
      return Status();
    }));
    std::fill_n(region.data() + kJournalOffset + last, sizeof(RecordHeader), std::byte{0});
  }
  // An opening dies before the `number`-th replica that it reaches has installed its epoch.
  void ExpectCutAtInstall(int number) {
    LoseOnce(Body::InstallRequest, number);
    lost_ = Body::ReleaseRequest;
    auto store = Opened();
    ASSERT_NE(store, nullptr);
    TakeResult result;
    EXPECT_THAT(store->Take(Request(), &result), StatusIs(Code::kUnavailable));
    store.reset();
    lost_ = Body::NONE;
  }
  void ExpectFormerListOpensOrIsRefused(const std::string& content) {
    auto store = Opened();
    ASSERT_NE(store, nullptr);
    TakeResult result;
    const Status status = store->Take(Request(), &result);
    if (status.ok()) {
      EXPECT_EQ(Content(*store), content);
    } else {
      EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, testing::HasSubstr("list all of them")));
    }
  }
};

TEST_F(SessionCutTest, FirstTakingCutAnywhere) {
  int cut = 0;
  while (TakeCutAt(cut)) {
    ++cut;
    ASSERT_LT(cut, 100);
    pairing_ = {};
  }
  EXPECT_GT(cut, 15);  // three replicas: seal, attach, checksums, install, prepare, connect
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

TEST_F(SessionCutTest, TakingAGroupWithDataCutAnywhere) {
  std::string all;
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
  }
  // Each of its requests is lost in turn, then each of the replies.
  bool more = true;
  for (int cut = 0; more || cut_fate_ == Fate::kRequestLost; ++cut) {
    if (!more) {
      cut_fate_ = Fate::kReplyLost;
      cut = 0;
    }
    ASSERT_LT(cut, 100);
    {
      // A primary that leaves its last records behind, executed or not, and does not close orderly.
      auto store = Taken();
      ASSERT_NE(store, nullptr);
      ASSERT_EQ(Content(*store), all) << "before cut " << cut;
      const auto file = store->Lookup("f");
      ASSERT_OK(file);
      for (int i = 0; i < 5; ++i) {
        const std::string piece =
            std::to_string(cut) + "." + std::to_string(i) + std::string(100, '-') + ";";
        ASSERT_OK(AppendDurably(*store, *file, piece));
        all += piece;
      }
      cut_ = -1;  // not even a release gets through
      requests_ = 0;
    }
    cut_ = INT32_MAX;
    more = TakeCutAt(cut);
  }
  ExpectTakenWith(all);
}

// Whatever the cut left of the addition, opening with the new replica completes it. The former list
// still opens, unless a replica has recorded the new one already.
TEST_F(SessionCutTest, AddingAReplicaCutAnywhere) {
  const std::string changing = replicas_[2]->address();
  std::string all;
  bool more = true;
  for (int cut = 0; more; ++cut) {
    ASSERT_LT(cut, 100);
    SCOPED_TRACE(cut);
    listed_ = 2;
    remove_replica_ = changing;  // the round before added it
    {
      auto store = Taken();
      ASSERT_NE(store, nullptr);
      const auto file = cut == 0 ? store->Create("f") : store->Lookup("f");
      ASSERT_OK(file);
      const std::string piece = "acknowledged before cut " + std::to_string(cut) + ";";
      ASSERT_OK(AppendDurably(*store, *file, piece));
      all += piece;
      cut_ = -1;  // not even a release gets through
      requests_ = 0;
    }
    cut_ = INT32_MAX;
    remove_replica_.clear();
    listed_ = 3;
    add_replica_ = changing;
    more = TakeCutAt(cut);
    listed_ = 2;
    add_replica_.clear();
    ExpectFormerListOpensOrIsRefused(all);
    listed_ = 3;
    add_replica_ = changing;
    ExpectTakenWith(all);
    add_replica_.clear();  // it is of the group now
    ExpectTakenWith(all);
  }
}

// One of three replicas is left.
TEST_F(SessionCutTest, GoingOnByForceCutAnywhere) {
  const std::string all = FillExtents();
  const std::vector<std::string> lost = {replicas_[1]->address(), replicas_[2]->address()};
  const uint16_t port = replicas_[0]->port();
  const std::string pool = folder_ + "/r0", saved = folder_ + "/saved";
  const std::string own = folder_ + "/primary", saved_own = folder_ + "/saved_own";
  replicas_.clear();
  std::filesystem::copy_file(pool, saved);
  std::filesystem::copy_file(own, saved_own);
  listed_ = 1;
  bool more = true;
  int begun = 0;
  for (int cut = 0; more; ++cut) {
    ASSERT_LT(cut, 100);
    SCOPED_TRACE(cut);
    replicas_.clear();
    std::filesystem::remove(pool);
    std::filesystem::copy_file(saved, pool);
    // What the branch of the round before acknowledged would not be overwritten.
    std::filesystem::remove(own);
    std::filesystem::copy_file(saved_own, own);
    replicas_.push_back(StartReplica(0, port));
    ASSERT_NE(replicas_[0], nullptr);
    given_up_ = lost;
    more = TakeCutAt(cut);
    // Once the branch is installed, the others are not of the configuration any more.
    if (Hello(0).branch_epoch != 0) {
      ++begun;
      given_up_.clear();
    }
    ExpectTakenWith(all);
    EXPECT_NE(Hello(0).branch_epoch, 0u);
    given_up_.clear();
    ExpectTakenWith(all);
  }
  EXPECT_GT(begun, 1) << "cut after the installation, too";
}

// A replica that stops during a taking delays it by the documented time, not by a minute: here half
// a second to connect, and one for each slow request, of which there are a few.
TEST_F(SessionCutTest, ReplicaThatStopsAnsweringIsGivenUpInTime) {
  { ASSERT_NE(Taken(), nullptr); }
  for (const Body type : {Body::HelloRequest, Body::ExamineRequest, Body::SealRequest,
                          Body::AttachRequest, Body::ChecksumsRequest, Body::InstallRequest,
                          Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    auto store = Opened(std::chrono::milliseconds(500), std::chrono::seconds(1));
    ASSERT_NE(store, nullptr);
    silent_ = type;
    const auto start = std::chrono::steady_clock::now();
    TakeResult result;
    const Status status = store->Take(Request(), &result);
    store.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, kMinute);
    EXPECT_THAT(status, testing::AnyOf(StatusIs(Code::kUnavailable), StatusIs(Code::kTimedOut)));
    EXPECT_THAT(status.message(), testing::HasSubstr("did not answer")) << status.ToString();
    silent_ = Body::NONE;
    silent_.notify_all();
  }
  EXPECT_NE(Taken(), nullptr);
}

// Takings that do not reach a replica leave it behind, by more than one Seal may raise an epoch.
TEST_F(SessionCutTest, ReplicasThatManyTakingsPassedByCatchUp) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Close());
  const uint64_t before = Hello(0).sealed_epoch;
  for (int i = 0; i < 3; ++i)
    for (const size_t at : {1, 2})
      Ask<control::SealReplyT>(at, RivalSeal(Hello(at), control::kMaxEpochStep));
  store = Taken();
  ASSERT_NE(store, nullptr);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Hello(i).installed_epoch, before + 3 * control::kMaxEpochStep + 1);
  }
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// One member claims ever greater epochs. Each opening seals the others once, and names it.
TEST_F(SessionCutTest, OneMembersGreatEpochCostsTheOthersOneSeal) {
  ASSERT_OK(Taken()->Close());
  for (int round = 0; round < 3; ++round) {
    const uint64_t claim = Hello(0).sealed_epoch + kMostAhead;
    Ask<control::SealReplyT>(2, RivalSeal(Hello(2), kMostAhead));
    seals_ = 0;
    log_->Clear();
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(Hello(0).sealed_epoch, claim + 1);
    EXPECT_EQ(seals_, 3);
    EXPECT_TRUE(log_->Has("replica " + AddressOf(2) + " alone says that it is at epoch"));
    EXPECT_OK(store->Close());
  }
  ExpectEqualRegions();
}

TEST_F(SessionCutTest, WhoCannotBeSealedIsNamedWithTheOneThatDemandsTheEpoch) {
  ASSERT_OK(Taken()->Close());
  Ask<control::SealReplyT>(2, RivalSeal(Hello(2), kMostAhead));
  auto store = Opened();
  ASSERT_NE(store, nullptr);
  lost_ = Body::SealRequest;
  TakeResult result;
  EXPECT_THAT(store->Take(Request(), &result),
              StatusIs(Code::kUnavailable,
                       testing::AllOf(testing::HasSubstr("replica " + AddressOf(0) + ": "),
                                      testing::HasSubstr(AddressOf(2) + " alone says"))));
  lost_ = Body::NONE;
}

// Of three replicas 0 and 1 lack the last record. An opening with these two installs its epoch at
// replica 0 alone. Then one with the other two makes replica 1's log as long as that of replica 2.
// What neither of them served is not taken for acknowledged, though all processes start anew.
TEST_F(SessionCutTest, WhatACutOpeningMadeLongerIsNotTakenForAcknowledged) {
  std::string all;
  {
    StoreOptions options = Options();
    options.ack_timeout = std::chrono::seconds(4);
    auto store = Taken(options);
    ASSERT_NE(store, nullptr);
    const auto file = store->Create("f");
    ASSERT_OK(file);
    ASSERT_OK(AppendDurably(*store, *file, all = "acknowledged;"));
    ASSERT_OK(AppendDurably(*store, *file, "not acknowledged;"));
    // It does not close orderly: its queues end, and nothing else gets through.
    requests_ = 0;
    cut_ = 1;
    EndQueues(0);
  }
  cut_ = INT32_MAX;
  for (const size_t i : {0, 1}) RemoveLastRecord(replicas_[i]->region());
  std::filesystem::remove(folder_ + "/primary");  // it knows that the record was acknowledged
  without_some_ = true;
  Stop(2);
  ExpectCutAtInstall(2);
  EXPECT_GT(Hello(0).installed_epoch, Hello(1).installed_epoch);
  Stop(0);
  StartAgain(2);
  ExpectCutAtInstall(1);
  StartAgain(0);
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), all);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The primary's pool must not belong to a group that the replicas never kept.
TEST_F(SessionCutTest, FreshGroupWhoseFirstTakingFailsIsTakenTheNextTime) {
  for (const Body type : {Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    auto store = Opened();
    ASSERT_NE(store, nullptr);
    lost_ = type;
    TakeResult result;
    EXPECT_THAT(store->Take(Request(), &result), StatusIs(Code::kUnavailable));
    lost_ = Body::NONE;
  }
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_OK(store->Close());
}

TEST_F(SessionCutTest, ManyThreadsAppendAndRead) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto file = store->Create("f" + std::to_string(t));
      for (int i = 0; file.ok() && i < 200; ++i) {
        if (!AppendDurably(*store, *file, std::to_string(i) + ",").ok()) ++failed;
        char byte;
        if (!store->Read(*file, 0, std::span(&byte, 1)).ok()) ++failed;
        static_cast<void>(store->statistics());
      }
      if (!file.ok()) ++failed;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failed, 0);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Seals them step by step, although what they have installed was never served.
TEST_F(SessionCutTest, UnservedReplicasThatManyTakingsPassedByCatchUp) {
  const std::string all = FillExtents();
  for (int cut = 0; Hello(1).installed_epoch == Hello(1).served_epoch; ++cut)
    ASSERT_TRUE(TakeCutAt(cut));
  for (int i = 0; i < 3; ++i)
    for (const size_t at : {1, 2})
      Ask<control::SealReplyT>(at, RivalSeal(Hello(at), control::kMaxEpochStep));
  ExpectTakenWith(all);
}

}  // namespace
}  // namespace hyperloop::test
