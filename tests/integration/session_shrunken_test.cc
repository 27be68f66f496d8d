// A group that goes on without a replica that failed, and takes it in again
// (on_replica_failure=continue).

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>

#include "integration/session_fixture.h"
#include "primary/failure_times.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SessionShrunkenTest : public SessionFixture {
 protected:
  // A replica is left out after a fifth of ack_timeout. Calls wait for as long, and no test
  // minds if some fail before that (Insist).
  StoreOptions Continuing(const std::string& pool = "primary") const {
    StoreOptions options = Options(pool);
    options.on_replica_failure = OnReplicaFailure::kContinue;
    options.ack_timeout = std::chrono::seconds(4);
    options.takeover = false;
    return options;
  }
  StoreOptions Blocking() const {
    StoreOptions options = Continuing();
    options.on_replica_failure = OnReplicaFailure::kBlock;
    return options;
  }
  bool IsWhole() {
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (Hello(i).installed_replicas.size() != replicas_.size()) return false;
    return true;
  }
  void ExpectBegins(Store& store) { EXPECT_THAT(Content(store), testing::StartsWith("one")); }
  void CloseAndExpectEqual(Store& store) {
    EXPECT_OK(store.Close());
    ExpectEqualRegions();
  }
};

// It is sealed anew, and says that another primary has it. What it has promised says otherwise.
TEST_F(SessionShrunkenTest, AnErrorOfAMemberFencesNobody) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  lying_ = 1;
  Stop(2);
  EXPECT_TRUE(Eventually([&] {
    AppendDurably(*store, file_, "two").IgnoreError();
    return lies_ > 10;
  }));
  lying_ = -1;
  EXPECT_TRUE(Insist(*store, "three"));
  EXPECT_FALSE(log_->Has("fenced: "));
  ExpectBegins(*store);
  EXPECT_OK(store->Close());
}

// The primary's machine is so busy that the time after which a member is left out is over before
// the primary has ended its broken queues.
TEST_F(SessionShrunkenTest, AMemberThatAnswersIsNotLeftOutWithoutAnAttemptToBringItBack) {
  const StoreOptions options = Continuing();
  before_device_ends_ = [&] { std::this_thread::sleep_for(FailureTimesOf(options).absence); };
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  EndQueues(2);
  EXPECT_TRUE(Eventually([&] { return log_->Has("the group is back"); }));
  EXPECT_FALSE(log_->Has("going on with 2 of 3 replicas"));
  EXPECT_TRUE(IsWhole());
  EXPECT_TRUE(Insist(*store, "two"));
  ExpectBegins(*store);
  CloseAndExpectEqual(*store);
}

// It is not taken in by itself any more.
TEST_F(SessionShrunkenTest, AReplicaThatWasLeftOutLeavesTheGroupWhileItServes) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  control::ProposeRequestT leave;
  leave.group = Hello(0).group;
  leave.leaves = true;
  Stop(2);
  EXPECT_TRUE(Insist(*store, "two"));
  ASSERT_THAT(Hello(0).absent_replicas, ElementsAre(AddressOf(2)));
  leave.replica = AddressOf(2);
  EXPECT_TRUE(Eventually([&] {
    Propose(leave);
    return Hello(0).absent_replicas.empty();
  }));
  EXPECT_TRUE(Insist(*store, "three"));
  for (const size_t at : {0, 1}) {
    EXPECT_THAT(Hello(at).installed_replicas, ElementsAre(AddressOf(0), AddressOf(1)));
    EXPECT_THAT(Hello(at).absent_replicas, IsEmpty());
  }
  EXPECT_TRUE(log_->Has("is not of the group any more"));
  EXPECT_FALSE(log_->Has("another primary was promised"));
  StartAgain(2);
  EXPECT_TRUE(Insist(*store, "four"));
  EXPECT_EQ(Hello(0).installed_replicas.size(), 2u);
  control::ProposeRequestT add;
  add.group = leave.group;
  add.replica = AddressOf(2);
  EXPECT_TRUE(Eventually([&] {
    Propose(add);
    return IsWhole();
  }));
  EXPECT_TRUE(Insist(*store, "five"));
  ExpectBegins(*store);
  CloseAndExpectEqual(*store);
}

// A replica that starts again has forgotten what was proposed to it.
TEST_F(SessionShrunkenTest, ARemovalThatNobodyProposesAnyMoreIsNotCarriedOut) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  control::ProposeRequestT leave;
  leave.group = Hello(0).group;
  leave.replica = AddressOf(2);
  leave.leaves = true;
  Stop(2);
  EXPECT_TRUE(Insist(*store, "two"));
  lost_ = Body::SealRequest;
  EXPECT_TRUE(Eventually([&] {
    Propose(leave);
    return log_->Has("is to leave the group");
  }));
  Stop(1);
  // The members are asked one after the other. So the second question from now on begins a round
  // that the third one shows to be over.
  const int asked = asked_;
  EXPECT_TRUE(Eventually([&] { return asked_ >= asked + 3; }));
  lost_ = Body::NONE;
  StartAgain(1);
  EXPECT_TRUE(Insist(*store, "three"));
  EXPECT_THAT(Hello(0).absent_replicas, ElementsAre(AddressOf(2)));
  EXPECT_FALSE(log_->Has("is not of the group any more"));
  StartAgain(2);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_TRUE(Insist(*store, "four"));
  CloseAndExpectEqual(*store);
}

TEST_F(SessionShrunkenTest, GoesOnWithoutADeadReplicaAndTakesItInAgain) {
  for (size_t dead = 0; dead < 3; ++dead) {
    SCOPED_TRACE(dead);
    log_->Clear();
    auto store = Serving(Continuing());
    ASSERT_NE(store, nullptr);
    Stop(dead);
    EXPECT_TRUE(Insist(*store, "two"));
    const NodeStatus shrunken = StatusOf((dead + 1) % 3);
    EXPECT_EQ(shrunken.replicas.size(), 2u);
    EXPECT_THAT(shrunken.absent, ElementsAre(AddressOf(dead)));
    EXPECT_THAT(shrunken.configuration.absent, ElementsAre(AddressOf(dead)));
    EXPECT_THAT(shrunken.absences,
                ElementsAre(testing::MatchesRegex("since 20[0-9-]*T[0-9:]*Z: replica " +
                                                  AddressOf(dead) + " does not answer")));
    EXPECT_TRUE(log_->Has("going on with 2 of 3 replicas"));
    StartAgain(dead);
    if (dead == 1) {
      EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
    } else {
      EXPECT_OK(store->Close());
      store = Taken(Blocking());  // takes it in as well
      ASSERT_NE(store, nullptr);
      EXPECT_TRUE(IsWhole());
    }
    EXPECT_THAT(StatusOf(dead).absent, IsEmpty());
    EXPECT_TRUE(Insist(*store, store->Lookup("f").value(), "three"));
    ExpectBegins(*store);
    EXPECT_THAT(Content(*store), testing::EndsWith("three"));
    EXPECT_OK(store->Remove("f"));
    CloseAndExpectEqual(*store);
  }
}

// Over links between machines a queue pair decides how long a silence lasts.
TEST_F(SessionShrunkenTest, NoWayToAMemberIsSilentForLongUnnoticed) {
  StoreOptions options = Options();
  options.on_replica_failure = OnReplicaFailure::kContinue;
  options.ack_timeout = std::chrono::seconds(10);  // the default
  std::vector<std::chrono::milliseconds> silences;
  auto store = OpenSession(
      options,
      [&]() -> Result<std::unique_ptr<rnic::Device>> {
        HL_ASSIGN_OR_RETURN(std::unique_ptr<rnic::Device> device, rnic_.OpenDevice("primary"));
        return std::unique_ptr<rnic::Device>(std::make_unique<HookedDevice>(
            std::move(device),
            HookedDevice::Hooks{.before_queue_pair = [&](const rnic::QpAttr& attr) {
              silences.push_back(attr.link_timeout);
            }}));
      },
      log_);
  ASSERT_OK(store);
  TakeResult result;
  ASSERT_OK((*store)->Take(Request(), &result));
  pairing_ = result.pairing;
  EXPECT_THAT(silences, AllOf(testing::SizeIs(testing::Ge(4u)),
                              testing::Each(testing::Le(std::chrono::milliseconds(1500)))));
  EXPECT_OK((*store)->Close());
}

TEST_F(SessionShrunkenTest, TheLogSaysWhatFollowsAndNamesTheTimeoutsThatWereSet) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_TRUE(Insist(*store, "two"));
  EXPECT_TRUE(log_->Has("a replica that does not answer for 800 ms is left out"));
  EXPECT_OK(store->Close());
  StartAgain(1);
  log_->Clear();
  store = Taken(Blocking());
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_THAT(AppendDurably(*store, file_, "three"),
              StatusIs(Code::kUnavailable, HasSubstr("writes fail after ack_timeout = 4000 ms")));
  EXPECT_TRUE(log_->Has("reconnecting; writes fail after ack_timeout = 4000 ms"));
}

TEST_F(SessionShrunkenTest, MetricsNameTheReplicaThatIsLeftOut) {
  StoreOptions options = Continuing();
  options.metrics_file = folder_ + "/primary.prom";
  options.ack_timeout = std::chrono::seconds(12);  // there is one recovery, and no other
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  const auto shows = [&](const std::string& line) {
    std::ifstream file(options.metrics_file);
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    return page.find(line) != std::string::npos;
  };
  const std::string group = "{group=\"" + pairing_.group + "\"";
  const auto present = [&](const char* value) {
    return "hyperloop_primary_replica_present" + group + ",replica=\"" + AddressOf(1) + "\"} " +
           value + "\n";
  };
  EXPECT_TRUE(Eventually([&] { return shows(present("1")); }));
  EXPECT_TRUE(shows("hyperloop_primary_next_failure_stops_writes" + group + "} 0\n"));
  EXPECT_TRUE(shows("hyperloop_primary_bears_failure_when_whole" + group + "} 1\n"));
  EXPECT_TRUE(shows("hyperloop_primary_recoveries_total" + group + "} 0\n"));
  Stop(1);
  EXPECT_TRUE(Insist(*store, "two"));
  EXPECT_TRUE(Eventually([&] { return shows(present("0")); }));
  EXPECT_TRUE(shows("hyperloop_primary_next_failure_stops_writes" + group + "} 1\n"));
  EXPECT_TRUE(shows("hyperloop_primary_bears_failure_when_whole" + group + "} 1\n"));
  EXPECT_TRUE(shows("hyperloop_primary_recoveries_total" + group + "} 1\n"));
  EXPECT_TRUE(shows("hyperloop_primary_up" + group + "} 1\n"));
  EXPECT_OK(store->Close());
  EXPECT_FALSE(std::filesystem::exists(options.metrics_file));
}

// Since when a replica is absent outlives the primary that left it out.
TEST_F(SessionShrunkenTest, TheNextPrimaryKnowsSinceWhenAndWhyAReplicaIsAbsent) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_TRUE(Insist(*store, "two"));
  const std::vector<std::string> first = StatusOf(0).absences;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_OK(store->Close());
  store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(StatusOf(0).absences, first);
  EXPECT_EQ(StatusOf(2).absences, first);
  StartAgain(1);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_THAT(StatusOf(0).absences, IsEmpty());
  EXPECT_OK(store->Close());
  // Here an opening leaves it out.
  Stop(1);
  store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(
      StatusOf(2).absences,
      ElementsAre(AllOf(testing::MatchesRegex("since 20[0-9-]*T[0-9:]*Z \\(an opening\\): .*"),
                        HasSubstr(AddressOf(1)))));
}

// Its journal may have gigabytes.
TEST_F(SessionShrunkenTest, WritesGoOnWhileTheJournalOfAReplicaThatIsBackIsRead) {
  std::atomic<bool> waits{false};
  std::atomic<int> reads{0};
  before_post_ = [&](rnic::SendRequest* request) -> Status {
    if (request->opcode == rnic::Opcode::kRead && waits && request->sges[0].length > 4096) {
      ++reads;
      waits.wait(true);
    }
    return {};
  };
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_TRUE(Insist(*store, "two"));
  waits = true;
  StartAgain(1);
  EXPECT_TRUE(Eventually([&] { return reads > 0; }));
  auto appended =
      std::async(std::launch::async, [&] { return AppendDurably(*store, file_, "three"); });
  const bool went_on = appended.wait_for(kMinute) == std::future_status::ready;
  EXPECT_TRUE(went_on) << "the write waits for the reading";
  EXPECT_EQ(Hello(0).installed_replicas.size(), 2u);
  waits = false;
  waits.notify_all();
  EXPECT_OK(appended.get());
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_FALSE(log_->Has("could not be taken in"));
  CloseAndExpectEqual(*store);
}

// What the primary asks a replica that was left out may last. The next primary does not wait for
// that.
TEST_F(SessionShrunkenTest, AClosingReleasesTheGroupBeforeItsLastQuestionIsAnswered) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_TRUE(Insist(*store, "two"));
  slow_device_ = true;
  const int asked = devices_asked_;
  StartAgain(1);
  EXPECT_TRUE(Eventually([&] { return devices_asked_ > asked; }));
  auto closed = std::async(std::launch::async, [&] { return store->Close(); });
  EXPECT_TRUE(Eventually([&] { return Hello(0).released && Hello(2).released; }));
  EXPECT_EQ(closed.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  slow_device_ = false;
  slow_device_.notify_all();
  EXPECT_OK(closed.get());
}

// A replica whose machine was replaced has the address, but neither the pool nor the node id.
TEST_F(SessionShrunkenTest, AReplicaThatLostItsPoolIsFilledFromTheOthers) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(1);
  std::filesystem::remove(folder_ + "/r1");
  StartAgain(1);
  EXPECT_TRUE(Insist(*store, "two"));
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  CloseAndExpectEqual(*store);
  store = Taken(Blocking());
  ASSERT_NE(store, nullptr);
  ExpectBegins(*store);
  EXPECT_THAT(Content(*store), testing::EndsWith("two"));
}

// While the replica was down, all others, and the primary's pool, went back to older copies, and
// the group went on from there.
class WhatTheOthersLostTest : public SessionShrunkenTest {
 protected:
  // Replica 1 has "two" and "three", and `later` was written without it.
  void GoOnWithout(const std::vector<std::string>& later) {
    store_ = Serving(Continuing());
    ASSERT_NE(store_, nullptr);
    ASSERT_OK(store_->Close());
    store_.reset();
    for (const size_t i : {0u, 2u}) Stop(i);
    for (const std::string pool : {"r0", "r2"})
      std::filesystem::copy_file(folder_ + "/" + pool, folder_ + "/old-" + pool);
    for (const size_t i : {0u, 2u}) StartAgain(i);
    store_ = Taken(Continuing());
    ASSERT_NE(store_, nullptr);
    for (const std::string each : {"two", "three"}) ASSERT_OK(AppendDurably(*store_, file_, each));
    ASSERT_OK(store_->Close());
    store_.reset();
    for (size_t i = 0; i < 3; ++i) Stop(i);
    std::filesystem::remove(folder_ + "/primary");
    for (const std::string pool : {"r0", "r2"})
      std::filesystem::rename(folder_ + "/old-" + pool, folder_ + "/" + pool);
    for (const size_t i : {0u, 2u}) StartAgain(i);
    store_ = Taken(Continuing());
    ASSERT_NE(store_, nullptr);
    for (const std::string& each : later) ASSERT_OK(AppendDurably(*store_, file_, each));
  }
  void ExpectRefused(const std::string& why) {
    StartAgain(1);
    const std::vector<std::byte> held(replicas_[1]->region().begin(), replicas_[1]->region().end());
    EXPECT_TRUE(Eventually([&] { return log_->Has("could not be taken in") || IsWhole(); }));
    EXPECT_TRUE(Eventually([&] {
      const std::vector<std::string> told = StatusOf(0).absences;
      return IsWhole() || (told.size() == 1 && told[0].find(why) != std::string::npos);
    }));
    EXPECT_TRUE(Insist(*store_, "on"));
    ASSERT_FALSE(IsWhole());
    EXPECT_TRUE(std::ranges::equal(replicas_[1]->region(), held)) << "it was overwritten";
    EXPECT_TRUE(Eventually([&] { return log_->Has("is not taken in again yet"); }));
    // The way out.
    Stop(1);
    std::filesystem::remove(folder_ + "/r1");
    StartAgain(1);
    EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
    CloseAndExpectEqual(*store_);
  }
  void ExpectLeftOutByAnOpening(const std::string& why) {
    ASSERT_OK(store_->Close());
    store_.reset();
    StartAgain(1);
    const std::vector<uint64_t> before = Epochs();
    EXPECT_THAT(Refusal(Blocking()), StatusIs(Code::kInvalidArgument, HasSubstr(why)));
    EXPECT_EQ(Epochs(), before) << "sealed, then refused";
    const std::vector<std::byte> held(replicas_[1]->region().begin(), replicas_[1]->region().end());
    store_ = Taken(Continuing());
    ASSERT_NE(store_, nullptr);
    EXPECT_TRUE(log_->Has(why));
    EXPECT_EQ(StatusOf(0).replicas.size(), 2u);
    EXPECT_THAT(StatusOf(0).absences,
                ElementsAre(AllOf(testing::MatchesRegex("since 20[0-9-]*T[0-9:]*Z.*: .*"),
                                  HasSubstr(why))));
    EXPECT_TRUE(std::ranges::equal(replicas_[1]->region(), held)) << "it was overwritten";
  }
  // Whether it may leave the replica out or not.
  void ExpectNoOpeningWithIt(const std::string& why) {
    ASSERT_OK(store_->Close());
    store_.reset();
    StartAgain(1);
    const std::vector<uint64_t> before = Epochs();
    const std::vector<std::byte> held(replicas_[1]->region().begin(), replicas_[1]->region().end());
    for (const StoreOptions& options : {Blocking(), Continuing()})
      EXPECT_THAT(Refusal(options), StatusIs(Code::kCorruption, HasSubstr(why)));
    EXPECT_EQ(Epochs(), before) << "sealed, then refused";
    EXPECT_TRUE(std::ranges::equal(replicas_[1]->region(), held)) << "it was overwritten";
    // The way out.
    Stop(1);
    std::filesystem::rename(folder_ + "/r1", folder_ + "/r1.aside");
    StartAgain(1);
    store_ = Taken(Continuing());
    ASSERT_NE(store_, nullptr);
    EXPECT_TRUE(IsWhole());
    CloseAndExpectEqual(*store_);
  }
  std::unique_ptr<Store> store_;
};

TEST_F(WhatTheOthersLostTest, AReplicaThatProvesMoreIsNotTakenIn) {
  ASSERT_NO_FATAL_FAILURE(GoOnWithout({}));
  ExpectRefused("but the group's log ends at");
}

TEST_F(WhatTheOthersLostTest, AReplicaThatProvesOtherRecordsIsNotTakenIn) {
  ASSERT_NO_FATAL_FAILURE(GoOnWithout(std::vector<std::string>(9, "other")));
  ExpectRefused("of the group's log is another one");
}

TEST_F(WhatTheOthersLostTest, NoOpeningDropsMoreRecords) {
  ASSERT_NO_FATAL_FAILURE(GoOnWithout({}));
  ExpectNoOpeningWithIt("start the others on the pools that they had");
}

TEST_F(WhatTheOthersLostTest, AnOpeningDoesNotOverwriteOtherRecordsEither) {
  ASSERT_NO_FATAL_FAILURE(GoOnWithout(std::vector<std::string>(9, "other")));
  ExpectLeftOutByAnOpening("of the group's log is another one");
}

TEST_F(SessionShrunkenTest, OpensWithoutADeadReplicaOnlyIfItMayContinue) {
  ASSERT_OK(Serving(Blocking())->Close());
  Stop(2);
  EXPECT_THAT(Refusal(Blocking()), StatusIs(Code::kUnavailable, HasSubstr(AddressOf(2))));
  StoreOptions all = Continuing();
  all.min_replicas = 3;
  EXPECT_THAT(Refusal(all), StatusIs(Code::kUnavailable, HasSubstr("3 are needed")));
  auto store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_OK(AppendDurably(*store, *store->Lookup("f"), "two"));
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(AddressOf(2)));
  EXPECT_OK(store->Close());
  StartAgain(2);
  store = Taken(Blocking());  // whoever opens next takes it in again
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(IsWhole());
  EXPECT_EQ(Content(*store), "onetwo");
  CloseAndExpectEqual(*store);
}

TEST_F(SessionShrunkenTest, AnOpeningThatReachesNobodyNamesAll) {
  ASSERT_OK(Serving(Blocking())->Close());
  for (size_t i = 0; i < replicas_.size(); ++i) Stop(i);
  const auto all = AllOf(HasSubstr(AddressOf(0)), HasSubstr(AddressOf(1)), HasSubstr(AddressOf(2)));
  EXPECT_THAT(Refusal(Blocking()), StatusIs(Code::kUnavailable, all));
  EXPECT_THAT(Refusal(Continuing()), StatusIs(Code::kUnavailable, all));
}

// Two of three are the majority that decides. What one of them misses, it must not decide alone,
// nor with the one that was left out.
TEST_F(SessionShrunkenTest, TheReplicaThatWasLeftOutDecidesNothing) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(0);
  EXPECT_TRUE(Insist(*store, "two"));
  const std::string content = Content(*store);
  EXPECT_OK(store->Close());
  store.reset();
  Stop(2);
  StartAgain(0);
  // Replica 0 still records all three, replica 1 knows better.
  EXPECT_THAT(Refusal(Continuing()),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 2")));
  Stop(1);
  EXPECT_THAT(Refusal(Continuing()),
              StatusIs(Code::kUnavailable, HasSubstr("only 1 of the group's 3")));
  StoreOptions alone = Continuing();
  alone.replicas = {AddressOf(0)};
  EXPECT_THAT(Refusal(alone), StatusIs(Code::kInvalidArgument, HasSubstr("list all of them")));
  StartAllAgain();
  store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), content);
}

TEST_F(SessionShrunkenTest, AMinorityWaitsAndComesBack) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(0);
  Stop(1);
  // If the first loss is noticed long before the second, the group has shrunk to two already.
  EXPECT_THAT(AppendDurably(*store, file_, "two"),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("1 of "), HasSubstr("2 are needed"))));
  StartAllAgain();
  EXPECT_TRUE(Insist(*store, "three"));
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  ExpectBegins(*store);
  CloseAndExpectEqual(*store);
}

// Whoever only wants to know whether somebody is there waits for nobody else.
TEST_F(SessionShrunkenTest, AStoreOpensAtOnceThoughAReplicaIsSilent) {
  StandStill(0);
  StoreOptions options = Continuing();
  options.connect_timeout = std::chrono::hours(1);
  EXPECT_NE(Opened(options), nullptr);
}

// It answers at first, and can never be armed.
TEST_F(SessionShrunkenTest, AnOpeningGoesOnWithoutAReplicaThatFailsInIt) {
  ASSERT_OK(Serving(Continuing())->Close());
  unconnected_ = 2;
  const auto store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(AddressOf(2)));
  EXPECT_EQ(Content(*store), "one");
  unconnected_ = -1;
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
}

// Both ends of a way that is broken fail at being armed. The group has worked without the one that
// comes back, so that one alone is blamed, and most stay.
TEST_F(SessionShrunkenTest, AWayToAReturningReplicaThatIsBrokenIsNoFaultOfTheOldMember) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(2);
  EXPECT_TRUE(Insist(*store, "two"));
  broken_behind_ = 1;
  StartAgain(2);
  EXPECT_TRUE(Eventually([&] { return log_->Has("could not be taken in"); }));
  EXPECT_TRUE(Insist(*store, "three"));
  EXPECT_TRUE(Eventually([&] { return StatusOf(0).absent == std::vector{AddressOf(2)}; }));
  broken_behind_ = -1;
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  ExpectBegins(*store);
  CloseAndExpectEqual(*store);
}

TEST_F(SessionShrunkenTest, AnOpeningLeavesOutTheReturningReplicaAloneIfTheWayToItIsBroken) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(2);
  EXPECT_TRUE(Insist(*store, "two"));
  EXPECT_OK(store->Close());
  broken_behind_ = 1;
  StartAgain(2);
  store = Taken(Continuing());
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Eventually([&] { return StatusOf(0).absent == std::vector{AddressOf(2)}; }));
  ExpectBegins(*store);
  broken_behind_ = -1;
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  CloseAndExpectEqual(*store);
}

// It answers later than enough others by more than a tenth of connect_timeout, and is healthy.
TEST_F(SessionShrunkenTest, AReplicaThatAnswersLateIsNamedAndComesBack) {
  ASSERT_OK(Serving(Continuing())->Close());
  StandStill(2);
  StoreOptions options = Continuing();
  options.connect_timeout = std::chrono::seconds(20);
  const auto store = Taken(options);
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(log_->Has("goes on without replica " + AddressOf(2)));
  EXPECT_THAT(StatusOf(0).absent, ElementsAre(AddressOf(2)));
  EXPECT_OK(AppendDurably(*store, *store->Lookup("f"), "two"));
  GoOn(2);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_EQ(Content(*store), "onetwo");
  CloseAndExpectEqual(*store);
}

// A replica that stands still, and whose RNIC serves on, does not answer requests. Taking another
// one in would interrupt the group, which could then not go on.
TEST_F(SessionShrunkenTest, NothingIsInterruptedForAJoinerWhileAMemberIsSilent) {
  auto store = Serving(Continuing());
  ASSERT_NE(store, nullptr);
  Stop(2);
  EXPECT_TRUE(Insist(*store, "two"));
  StandStill(0);
  StartAgain(2);
  EXPECT_TRUE(Eventually([&] { return log_->Has("a member is silent"); }));
  EXPECT_TRUE(Eventually([&] { return log_->Has("replica " + AddressOf(0) + " is suspected"); }));
  const std::string before = Content(*store);
  EXPECT_OK(AppendDurably(*store, file_, "three"));
  EXPECT_THAT(StatusOf(1).absent, ElementsAre(AddressOf(2)));
  GoOn(0);
  EXPECT_TRUE(Eventually([&] { return IsWhole(); }));
  EXPECT_EQ(Content(*store), before + "three");
  CloseAndExpectEqual(*store);
}

TEST_F(SessionShrunkenTest, SilentReplicasWithoutWhichTheGroupWouldStopAreKept) {
  StoreOptions options = Continuing();
  options.heartbeat_timeout = std::chrono::seconds(3);
  options.ack_timeout = std::chrono::seconds(200);
  auto store = Serving(options);
  ASSERT_NE(store, nullptr);
  const auto suspected = [&](size_t i) {
    return log_->Has("replica " + AddressOf(i) + " is suspected");
  };
  StandStill(0);
  StandStill(2);
  EXPECT_TRUE(Eventually([&] { return suspected(0) && suspected(2); }));
  EXPECT_OK(AppendDurably(*store, file_, "two"));
  GoOn(0);
  GoOn(2);
  EXPECT_TRUE(
      Eventually([&] { return log_->Has("replica " + AddressOf(2) + " answers requests again"); }));
  EXPECT_FALSE(log_->Has("stopped answering"));
  EXPECT_EQ(Content(*store), "onetwo");
  CloseAndExpectEqual(*store);
}

// A primary that waits for a replica has no queues by which its heartbeat could move.
TEST_F(SessionShrunkenTest, APrimaryThatWaitsForAReplicaIsNotTakenForDead) {
  StoreOptions waiting = Continuing();
  waiting.min_replicas = 3;
  auto store = Serving(waiting);
  ASSERT_NE(store, nullptr);
  Stop(1);
  EXPECT_THAT(AppendDurably(*store, file_, "two"), StatusIs(Code::kUnavailable));
  EXPECT_THAT(Refusal(Continuing("second")), StatusIs(Code::kBusy));
  StartAgain(1);
  EXPECT_TRUE(Insist(*store, "three"));
  CloseAndExpectEqual(*store);
}

}  // namespace
}  // namespace hyperloop::test
