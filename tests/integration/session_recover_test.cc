// A primary whose group stopped answering, or whom a rival wants to replace, goes on or is fenced.

#include <thread>

#include "follow/log_follower.h"
#include "integration/session_fixture.h"
#include "primary/absent_watch.h"
#include "support/rival_seal.h"

namespace hyperloop::test {
namespace {

class SessionRecoverTest : public SessionFixture {
 protected:
  // The members are the first two of three replicas, as they installed their configuration.
  void WatchFirstTwo(AbsentWatch* watch) {
    const control::HelloReplyT hello = Hello(0);
    Configuration configuration;
    configuration.epoch = hello.installed_epoch;
    for (size_t i = 0; i < 3; ++i) {
      (i < 2 ? configuration.replicas : configuration.absent)
          .push_back({ParseUuid(hello.installed_nodes[i]).value(), replicas_[i]->address()});
    }
    watch->Set(configuration, ParseUuid(hello.group).value(), kRegion);
  }
};

// A write that finds its group lost, and a replica that hangs while the group is restored, ends in
// a bounded time. The next one finds the group again.
TEST_F(SessionRecoverTest, ReplicaThatHangsInARestorationHoldsWritesNoLongerThanStated) {
  auto store = Opened(std::chrono::seconds(5), std::chrono::seconds(1));
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(Request(), &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  for (const Body type : {Body::ReconnectRequest, Body::AttachRequest, Body::ChecksumsRequest,
                          Body::PrepareMemberRequest, Body::ConnectMemberRequest}) {
    SCOPED_TRACE(control::BodyName(type));
    no_device_ = true;  // the group does not come back before the replica hangs
    EndQueues(1);
    silent_ = type;
    no_device_ = false;
    const auto start = std::chrono::steady_clock::now();
    const Status status = AppendDurably(*store, *file, "x");
    EXPECT_LT(std::chrono::steady_clock::now() - start, kMinute);
    // The store's own thread may have tried first, while there was no RNIC.
    EXPECT_THAT(status,
                StatusIs(Code::kUnavailable, testing::AnyOf(testing::HasSubstr("did not answer"),
                                                            testing::HasSubstr("does not answer"),
                                                            testing::HasSubstr("RNIC is away"))));
    silent_ = Body::NONE;
    silent_.notify_all();
    EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  }
  EXPECT_TRUE(Insist(*store, *file, "y"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A replica reads its region when it is sealed, which may take seconds. Whoever looks meanwhile
// must see that somebody is taking the group, or else he overtakes him.
TEST_F(SessionRecoverTest, ATakingShowsThatItLivesWhileItSeals) {
  ASSERT_OK(Taken()->Close());
  const uint64_t before = Hello(0).sealed_epoch;
  auto store = Opened();
  ASSERT_NE(store, nullptr);
  sealing_ = 1;
  std::thread taking([&] {
    TakeResult result;
    EXPECT_OK(store->Take(Request(), &result));
  });
  EXPECT_TRUE(Eventually([&] { return Hello(0).sealed_epoch > before; }));
  EXPECT_TRUE(HeartbeatMoves(0));
  FinishSealing();
  taking.join();
  EXPECT_OK(store->Close());
}

// A rival had sealed the first replica when this one looked, and seals the others before this one
// does. It lost the first one, so it cannot have the group.
TEST_F(SessionRecoverTest, OfTwoThatTakeTheGroupTheOneThatSealedTheFirstReplicaLastGetsIt) {
  ASSERT_OK(Taken()->Close());
  const auto rival_seals = [&](size_t i) { Ask<control::SealReplyT>(i, RivalSeal(Hello(i))); };
  rival_seals(0);
  auto store = Opened();
  ASSERT_NE(store, nullptr);
  TakeRequest request = Request();
  bool sealed = false;  // it judges again later
  request.judge = [&](const GroupFiles&) {
    if (!std::exchange(sealed, true)) {
      rival_seals(1);
      rival_seals(2);
    }
    return Status();
  };
  TakeResult result;
  ASSERT_OK(store->Take(request, &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  EXPECT_OK(AppendDurably(*store, *file, "one"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The replicas have ended this one's queues, which alone looks as if they were broken.
TEST_F(SessionRecoverTest, ATakingThatARivalInterruptsSaysWho) {
  ASSERT_OK(Taken()->Close());
  bool sealed = false;
  before_post_ = [&](rnic::SendRequest*) {
    if (std::exchange(sealed, true)) return Status();
    for (size_t i = 0; i < replicas_.size(); ++i) Ask<control::SealReplyT>(i, RivalSeal(Hello(i)));
    return Status();
  };
  auto store = Opened();
  ASSERT_NE(store, nullptr);
  TakeResult result;
  EXPECT_THAT(
      store->Take(Request(), &result),
      StatusIs(Code::kBusy, testing::AllOf(testing::HasSubstr("another primary takes the group"),
                                           testing::HasSubstr("of a candidate that died now"))));
}

// The rival was the last one to seal the first replica, or has installed its epoch.
TEST_F(SessionRecoverTest, WhoLostTheFirstReplicaOrComesAfterAnInstallationIsRefused) {
  ASSERT_OK(Taken()->Close());
  for (const bool installs : {false, true}) {
    SCOPED_TRACE(installs);
    auto store = Opened();
    ASSERT_NE(store, nullptr);
    TakeRequest request = Request();
    request.judge = [&](const GroupFiles&) {
      if (!installs) {
        Ask<control::SealReplyT>(0, RivalSeal(Hello(0)));
        return Status();
      }
      auto rival = Taken(Options("rival"));
      EXPECT_NE(rival, nullptr);
      return rival == nullptr ? Internal("no rival") : rival->Close();
    };
    TakeResult result;
    EXPECT_THAT(store->Take(request, &result), StatusIs(Code::kBusy));
  }
}

// Taking a replica in interrupts the group, which comes back only if all members answer then.
TEST_F(SessionRecoverTest, AReplicaCanBeTakenInOnlyWhileAllMembersAnswer) {
  ASSERT_OK(Taken()->Close());
  AbsentWatch watch(control::Trust(), {}, nullptr, -1);
  WatchFirstTwo(&watch);
  const auto ready = [&] { return watch.any_ready() && watch.Offered().ready.size() == 1; };
  const auto not_ready = [&] { return !watch.any_ready() && watch.Offered().ready.empty(); };
  EXPECT_TRUE(Eventually(ready));
  Stop(1);
  EXPECT_TRUE(Eventually(not_ready));
  StartAgain(1);
  EXPECT_TRUE(Eventually(ready));
}

TEST_F(SessionRecoverTest, NoReplicaLeavesWhileFewHoldTheTables) {
  ASSERT_OK(Taken()->Close());
  std::atomic<bool> few{true};
  std::atomic<size_t> of{0};
  AbsentWatch::Options options;
  options.few_hold = [&](size_t stay) {
    of = stay;
    return few.load();
  };
  AbsentWatch watch(control::Trust(), options, log_, -1);
  WatchFirstTwo(&watch);
  control::ProposeRequestT leave;
  leave.group = Hello(0).group;
  leave.replica = AddressOf(2);
  leave.leaves = true;
  EXPECT_TRUE(Eventually([&] {
    Propose(leave);
    return log_->Has(AddressOf(2) + " does not leave the group yet: fewer than half");
  }));
  EXPECT_EQ(of, 2u) << "of those that stay";
  EXPECT_EQ(watch.Offered().leaver, std::nullopt);
  few = false;
  EXPECT_TRUE(Eventually([&] {
    Propose(leave);
    return watch.Offered().leaver == AddressOf(2);
  }));
}

// Else a replica with a dead RNIC would hide that a member is silent.
TEST_F(SessionRecoverTest, AWayThatIsTriedForLongHidesNoSilentMember) {
  ASSERT_OK(Taken()->Close());
  std::atomic<bool> lasts{true};
  std::atomic<int> tries{0};
  AbsentWatch::Options options;
  options.try_way = [&](const Answered&, const std::vector<Answered>&) {
    ++tries;
    lasts.wait(true);
    return Status();
  };
  AbsentWatch watch(control::Trust(), options, log_, -1);
  WatchFirstTwo(&watch);
  EXPECT_TRUE(Eventually([&] { return tries == 1; }));
  StandStill(1);
  EXPECT_TRUE(Eventually([&] { return log_->Has(AddressOf(1) + " is suspected"); }));
  EXPECT_FALSE(watch.any_ready());
  EXPECT_EQ(tries, 1) << "one is under way";
  GoOn(1);
  lasts = false;
  lasts.notify_all();
  EXPECT_TRUE(Eventually([&] { return watch.any_ready(); }));
}

// With on_replica_failure=block, too: the group has worked without it.
TEST_F(SessionRecoverTest, AnAdditionThatDoesNotComeAboutIsTakenBack) {
  listed_ = 2;
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  unconnected_ = 2;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = replicas_[2]->address();
  ASSERT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).absent_replicas.size() == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return log_->Has("is not of the group, as before"); }));
  EXPECT_TRUE(log_->Has("its addition is taken back"));
  EXPECT_THAT(Hello(0).absent_replicas, testing::IsEmpty());
  EXPECT_THAT(Hello(0).installed_replicas, testing::ElementsAre(AddressOf(0), AddressOf(1)));
  EXPECT_EQ(Hello(1).installed_epoch, Hello(0).installed_epoch);
  EXPECT_OK(AppendDurably(*store, *file, "without it"));
  EXPECT_FALSE(log_->Has("another primary was promised")) << "there is none";
  unconnected_ = -1;
  EXPECT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).installed_replicas.size() == 3;
  }));
  EXPECT_OK(AppendDurably(*store, *file, " and with it"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// Its keys, its size and its role would do. Only its RNIC cannot be reached, as where a list of
// peers was not brought up to date.
TEST_F(SessionRecoverTest, AReplicaThatCannotBeReachedByRdmaIsNotRecorded) {
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  auto far = EmbeddedReplica::Start({.open_device = EmbeddedReplica::OpenerOf(rnic_, "r3"),
                                     .host = "out-of-reach",
                                     .pool = folder_ + "/r3",
                                     .size = kRegion,
                                     .gate = [](const auto&) { return Fate::kHandled; }});
  ASSERT_OK(far);
  const uint64_t epoch = Hello(0).installed_epoch;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = (*far)->address();
  EXPECT_TRUE(Eventually([&] {
    Propose(propose);
    return log_->Has("is not added yet: replica " + propose.replica +
                     " cannot be reached by RDMA from the primary");
  }));
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  EXPECT_EQ(Hello(0).installed_epoch, epoch) << "nothing was changed";
  EXPECT_THAT(Hello(0).absent_replicas, testing::IsEmpty());
  EXPECT_FALSE(log_->Has("stopped answering"));
  EXPECT_OK(store->Close());
}

// The neighbours in the chain, and the last replica and the primary, exchange operations.
TEST_F(SessionRecoverTest, AReplicaThatSomeoneInTheChainCannotReachIsNotRecorded) {
  listed_ = 2;
  StoreOptions options = Options();
  options.datapath = Datapath::kOffload;
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  const uint64_t epoch = Hello(0).installed_epoch;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = AddressOf(2);
  const auto refused = [&](int from, int to, const std::string& other) {
    no_way_to_ = to;
    no_way_from_ = from;
    return Eventually([&] {
      Propose(propose);
      return log_->Has(AddressOf(2) + " is not added yet: " + other +
                       " cannot be reached by RDMA: replica " +
                       AddressOf(static_cast<size_t>(from)) + ": no such host");
    });
  };
  EXPECT_TRUE(refused(1, 2, "replica " + AddressOf(2)));
  EXPECT_EQ(Hello(1).failed_way_to, AddressOf(2));
  EXPECT_TRUE(refused(2, 0, "replica " + AddressOf(0)));
  EXPECT_TRUE(refused(2, -1, "the primary"));
  EXPECT_EQ(Hello(0).installed_epoch, epoch) << "nothing was changed";
  EXPECT_THAT(Hello(0).absent_replicas, testing::IsEmpty());
  EXPECT_FALSE(log_->Has("stopped answering"));
  EXPECT_FALSE(log_->Has("adding it to the group")) << "no write waited";
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  no_way_from_ = -1;
  EXPECT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).installed_replicas.size() == 3 && Hello(0).absent_replicas.empty();
  }));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// All ways worked when they were tried. Both ends of the one that breaks then fail at being armed,
// and the group has worked without the newcomer.
TEST_F(SessionRecoverTest, AWayToANewcomerThatBreaksInTheChangeIsNoFaultOfTheOldMember) {
  listed_ = 2;
  auto store = Serving(Options());
  ASSERT_NE(store, nullptr);
  broken_behind_ = 1;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = AddressOf(2);
  ASSERT_TRUE(Eventually([&] {
    Propose(propose);
    return log_->Has("adding it to the group");
  }));
  EXPECT_TRUE(Eventually([&] { return log_->Has("is not of the group, as before"); }));
  EXPECT_THAT(Hello(0).installed_replicas, testing::ElementsAre(AddressOf(0), AddressOf(1)));
  EXPECT_THAT(Hello(0).absent_replicas, testing::IsEmpty());
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  broken_behind_ = -1;
  EXPECT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).installed_replicas.size() == 3 && Hello(0).absent_replicas.empty();
  }));
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// With fanout the primary alone writes to each of them.
TEST_F(SessionRecoverTest, WaysThatADatapathDoesNotUseAreNotNeeded) {
  listed_ = 2;
  StoreOptions options = Options();
  options.datapath = Datapath::kFanout;
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  no_way_to_ = 2;
  no_way_from_ = 1;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = AddressOf(2);
  EXPECT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).installed_replicas.size() == 3 && Hello(0).absent_replicas.empty();
  }));
  EXPECT_GT(ways_tried_, 0) << "that to the primary";
  EXPECT_OK(store->Close());
}

// The group has recorded it, and it never comes.
TEST_F(SessionRecoverTest, AnAddedReplicaThatNeverComesIsRemovedByAnOpening) {
  listed_ = 2;
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "content"));
  unconnected_ = 2;
  control::ProposeRequestT propose;
  propose.group = Hello(0).group;
  propose.replica = remove_replica_ = replicas_[2]->address();
  ASSERT_TRUE(Eventually([&] {
    Propose(propose);
    return Hello(0).absent_replicas.size() == 1;
  }));
  Stop(2);
  replicas_.pop_back();
  EXPECT_OK(AppendDurably(*store, *file, " and more"));
  EXPECT_OK(store->Close());
  ExpectTakenWith("content and more");
  EXPECT_TRUE(Hello(0).absent_replicas.empty());
}

// A call after an error of the group tries to bring it back; calls right after that one fail at
// once.
TEST_F(SessionRecoverTest, CallsToALostGroupDoNotAllTryToBringItBack) {
  auto store = Opened(std::chrono::seconds(5), std::chrono::seconds(2));
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(Request(), &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_TRUE(Insist(*store, *file, "one"));
  const std::string content = Content(*store);
  no_device_ = true;
  EndQueues(1);
  EXPECT_THAT(AppendDurably(*store, *file, "two"), StatusIs(Code::kUnavailable));
  const int before = devices_asked_;
  int at_once = 0;
  for (int i = 0; i < 1000; ++i) {
    const int asked = devices_asked_;
    ASSERT_THAT(store->Sync(), StatusIs(Code::kUnavailable));
    if (devices_asked_ == asked) ++at_once;
  }
  EXPECT_GT(devices_asked_, before) << "no call tried";
  EXPECT_GT(at_once, 250);
  EXPECT_THAT(store->Files(), StatusIs(Code::kUnavailable));
  no_device_ = false;
  ASSERT_TRUE(Eventually([&] { return store->Sync().ok(); }));
  EXPECT_THAT(Content(*store), testing::AnyOf(content, content + "two"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A record that is durable everywhere although its call failed, because the group came back later
// or the local disk failed. The program cuts it then, and nobody may have seen it.
TEST_F(SessionRecoverTest, AFollowerShowsNoWriteThatThePrimaryTakesBack) {
  const auto decisions = std::make_shared<Decisions>();
  TakeRequest request = Request();
  request.decisions = decisions;
  auto store = Opened();
  ASSERT_NE(store, nullptr);
  TakeResult result;
  ASSERT_OK(store->Take(request, &result));
  const auto file = store->Create("f");
  ASSERT_OK(file);
  const auto append = [&](std::string_view data) {
    const auto ticket = store->Append(*file, data);
    EXPECT_OK(ticket);
    EXPECT_OK(store->Await(*ticket));
    return ticket->record;
  };
  const auto device = rnic_.OpenDevice("observer");
  ASSERT_OK(device);
  const auto view = NodeView::Connect(**device, "r0");
  ASSERT_OK(view);
  LogFollower follower(
      [&](uint64_t offset, std::span<std::byte> out) { return (*view)->Read(offset, out); },
      [&] { return (*view)->Mark(); }, (*view)->region_size());
  const auto shows = [&](uint64_t record) {
    return follower.CatchUp().ok() && follower.shows() && follower.seq() >= record;
  };
  uint64_t begun = decisions->Begin();
  const uint64_t kept = append("one");
  decisions->Stands(begun, kept);
  decisions->End();
  EXPECT_TRUE(Eventually([&] { return shows(kept); }));

  begun = decisions->Begin();
  const uint64_t failed = append("two");
  EndQueues(1);
  ASSERT_TRUE(Eventually([&] { return store->Sync().ok(); })) << "nobody knows the outcome yet";
  ASSERT_TRUE(HeartbeatMoves(0));
  EXPECT_FALSE(shows(failed));
  decisions->TailLeft();
  decisions->End();
  ASSERT_TRUE(HeartbeatMoves(0));
  EXPECT_FALSE(shows(failed)) << "it is not cut yet";
  ASSERT_OK(store->Truncate(*file, 3));
  decisions->TailsCut();
  EXPECT_TRUE(Eventually([&] { return shows(failed + 1); }));
  EXPECT_EQ(FileTable::Load(follower.image(), follower.info())->List().front().size, 3u);
  EXPECT_OK(store->Close());
}

// It has lost its queues, and waits for a device to make others.
TEST_F(SessionRecoverTest, PrimaryThatWaitsForItsRnicIsSeenToLive) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  slow_device_ = true;
  const int before = devices_asked_;
  EndQueues(1);
  EXPECT_TRUE(Eventually([&] { return devices_asked_ > before; }));
  EXPECT_TRUE(HeartbeatMoves());
  slow_device_ = false;
  slow_device_.notify_all();
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
}

// No write fails and no queue breaks, because nobody writes. A rival would take it for dead.
TEST_F(SessionRecoverTest, PrimaryWhoseRnicStandsStillIsSeenToLive) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  rnic_.StopThread();
  EXPECT_TRUE(HeartbeatMoves());
  EXPECT_OK(rnic_.StartThread());
  EXPECT_OK(store->Create("f"));
  EXPECT_OK(store->Close());
}

// One message of the reclaiming is lost; the epoch that was installed by then is the primary's own.
TEST_F(SessionRecoverTest, ReclaimingThatIsCutInInstallGoesOn) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "one"));
  LoseOnce(Body::InstallRequest, 2);
  Ask<control::SealReplyT>(2, RivalSeal(Hello(2)));
  EXPECT_OK(AppendDurably(*store, *file, "two"));
  EXPECT_EQ(until_lost_, 0) << "nothing was lost: the test shows nothing";
  EXPECT_EQ(Content(*store), "onetwo");
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The rival was installed at one member or at all of them, or had connected the first one. The
// primary that it replaced goes on; in the first three cases even if it has looked meanwhile.
TEST_F(SessionRecoverTest, RivalThatFailsBeforeItServesFencesNobody) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  std::string all;
  struct Cut {
    Body type;
    int number;
  };
  for (const Cut& cut : {Cut{Body::InstallRequest, 2}, Cut{Body::PrepareMemberRequest, 1},
                         Cut{Body::ConnectMemberRequest, 1}, Cut{Body::ConnectMemberRequest, 2}}) {
    const std::string name =
        std::string(control::BodyName(cut.type)) + std::to_string(cut.number) + ";";
    SCOPED_TRACE(name);
    // If it saw the member that the rival has connected, it would take that one for the primary.
    const bool connects = cut.type == Body::ConnectMemberRequest && cut.number == 2;
    if (connects) Blind();
    auto rival = Opened(Options("rival"));
    ASSERT_NE(rival, nullptr);
    LoseOnce(cut.type, cut.number);
    TakeResult result;
    EXPECT_THAT(rival->Take(Request(), &result),
                StatusIs(Code::kUnavailable, testing::HasSubstr("cut off")));
    EXPECT_EQ(until_lost_, 0);
    See();
    rival.reset();
    all += name;
    EXPECT_TRUE(Eventually([&] { return store->Sync().ok(); }));
    EXPECT_OK(AppendDurably(*store, *file, name));
  }
  EXPECT_EQ(Content(*store), all);
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// The rival waits for a replica that hangs, and the primary looks for its standing meanwhile. That
// replica does not even learn that the rival gave up.
TEST_F(SessionRecoverTest, RivalThatHangsBeforeItServesFencesNobody) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  auto rival = Opened(std::chrono::seconds(2), std::chrono::seconds(2), "rival");
  ASSERT_NE(rival, nullptr);
  silent_ = Body::PrepareMemberRequest;
  TakeResult result;
  EXPECT_THAT(rival->Take(Request(), &result), StatusIs(Code::kTimedOut));
  silent_ = Body::NONE;
  silent_.notify_all();
  rival.reset();
  EXPECT_OK(AppendDurably(*store, *file, "x"));
  EXPECT_OK(store->Close());
  ExpectEqualRegions();
}

// A primary was stopped for long. Its successor has served, and was installing itself anew when it
// died: nobody lives, and what is installed was never served.
TEST_F(SessionRecoverTest, PrimaryThatWakesUpAfterItsSuccessorServedIsFenced) {
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  const auto file = store->Create("f");
  ASSERT_OK(file);
  ASSERT_OK(AppendDurably(*store, *file, "one"));
  Blind();
  auto successor = Opened(std::chrono::seconds(60), std::chrono::seconds(4), "successor");
  ASSERT_NE(successor, nullptr);
  TakeResult result;
  ASSERT_OK(successor->Take(Request(), &result));
  ASSERT_OK(AppendDurably(*successor, *successor->Lookup("f"), "two"));
  lost_ = Body::PrepareMemberRequest;
  Ask<control::SealReplyT>(2, RivalSeal(Hello(2)));
  EXPECT_TRUE(Eventually([&] { return Hello(2).installed_epoch > Hello(2).served_epoch; }));
  cut_ = -1;  // no Release gets through
  successor.reset();
  cut_ = INT32_MAX;
  lost_ = Body::NONE;
  See();
  Status status;
  EXPECT_TRUE(Eventually([&] {
    status = AppendDurably(*store, *file, "stale");
    return status.code() != Code::kUnavailable;
  }));
  EXPECT_THAT(status, StatusIs(Code::kFenced));
  store.reset();
  ExpectTakenWith("onetwo");
}

}  // namespace
}  // namespace hyperloop::test
