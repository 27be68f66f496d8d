// Tests what the bulk lane sends to replicas, and for whom it waits.
#include "files/bulk_lane.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "files/bulk_lane_fixture.h"

namespace hyperloop::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

using BulkLaneTest = BulkLaneFixture;

TEST_F(BulkLaneTest, EveryReplicaHoldsWhatIsListed) {
  Aim();
  const WholeFile table = Make("000007.sst", "more than one piece"), empty = Make("e.sst", "");
  List(table);
  List(empty);
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(table, empty));
}

TEST_F(BulkLaneTest, WhatIsListedNoMoreIsDropped) {
  Aim();
  const WholeFile old = Make("000007.sst", "old"), other = Make("000008.sst", "other");
  List(old);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile fresh = Make("000007.sst", "new bytes");
  Remove("000008.sst");
  List(fresh);
  ASSERT_OK(lane_->Await(kLongWait));
  lane_.reset();  // the thread finishes its step; the next lane asks what is there
  Begin();
  SetListed();
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile last = Make("000009.sst", "l");
  List(last);  // it is sent after the others are dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(fresh, last));
}

// It is held before it is listed, flushes do not wait for it, and it is kept when it changes lanes.
TEST_F(BulkLaneTest, AFileThatLeavesTheRegionIsHeldBeforeItIsListed) {
  Aim();
  const WholeFile table = Make("000007.sst", "table"), log = Make("000004.log", "log bytes");
  replicas_[1]->FailPuts(NoSpace("its disk is full"));
  lane_->SetLeaving({log});
  EXPECT_THAT(lane_->AwaitLeaving(log, milliseconds(1), lane_->interrupts()),
              StatusIs(Code::kUnavailable,
                       AllOf(HasSubstr("lacks 1 files"), HasSubstr("(bulk_timeout = "))));
  EXPECT_OK(lane_->Await(milliseconds(1))) << "nothing is listed";
  replicas_[1]->FailPuts({});
  ASSERT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(log));
  const uint64_t bytes = replicas_[0]->bytes();
  List(log);
  lane_->SetLeaving({});
  List(table);  // it would be sent after anything that is to be dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(log, table));
  EXPECT_EQ(replicas_[0]->bytes(), bytes + table.size) << "the log was sent once";
}

// Writes may wait for the file that leaves, and flushes for the tables.
TEST_F(BulkLaneTest, ListedFilesAndThoseThatLeaveTakeTurns) {
  const std::string three(3 * kPiece, 'x');
  const WholeFile first = Make("1.sst", three), second = Make("2.sst", three + "2");
  const WholeFile log = Make("000004.log", three + "3"), next = Make("000005.log", three + "4");
  for (const WholeFile& each : {first, second, Make("3.sst", three + "5")}) List(each);
  lane_->SetLeaving({log, next});
  constexpr int kBefore = 2 + 3 + 4 + 4 + 4;  // calls: connecting, the list, and the pieces
  for (const auto& each : replicas_) each->StopAt(kBefore + 1);
  Aim();
  for (const auto& each : replicas_) {
    each->AwaitStopped();
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(first, log, second, next));
    each->Go();
  }
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
}

TEST_F(BulkLaneTest, WhatDoesNotLeaveTheRegionAfterAllIsDropped) {
  Aim();
  const WholeFile table = Make("000007.sst", "table"), log = Make("000004.log", "log bytes");
  lane_->SetLeaving({log});
  ASSERT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  lane_->SetLeaving({});
  EXPECT_OK(lane_->AwaitLeaving(log, milliseconds(1), lane_->interrupts()));
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, AnArchivedLogIsNotSentAgain) {
  Aim();
  const WholeFile log = Make("000004.log", "log bytes of several pieces");
  List(log);
  ASSERT_OK(lane_->Await(kLongWait));
  const uint64_t bytes = replicas_[0]->bytes();
  // The local file gets its new name after the group knows it.
  const WholeFile archived{"archive/000004.log", log.size, log.checksum};
  listed_.erase(log.name);
  List(archived);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[0]->bytes(), bytes);
  const WholeFile table = Make("zzz.sst", "t");
  List(table);  // it is sent after the old name is dropped
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(archived, table));
}

TEST_F(BulkLaneTest, AWaitForALeavingFileSeesAnInterruptThatCameBefore) {
  const WholeFile log = Make("000004.log", "log bytes");
  Aim();
  replicas_[0]->FailPuts(NoSpace("its disk is full"));
  lane_->SetLeaving({log});
  const uint64_t before = lane_->interrupts();
  lane_->Interrupt();
  EXPECT_THAT(lane_->AwaitLeaving(log, kLongWait, before), StatusIs(Code::kUnavailable));
}

TEST_F(BulkLaneTest, WhatAReplicaSetAsideIsSentAgainThoughNothingElseIsToSend) {
  lane_.reset();
  list_again_ = milliseconds(1);
  Begin();
  Aim();
  const WholeFile table = Make("000007.sst", "table"), other = Make("000008.sst", "other");
  List(table);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[1]->SetAside(table);
  EXPECT_TRUE(Eventually([&] { return replicas_[1]->Finished().size() == 2; }));
  EXPECT_THAT(replicas_[1]->Finished(), testing::UnorderedElementsAre(table, other));
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AReplicaThatDoesNotListAgainStillHoldsWhatItHeld) {
  lane_.reset();
  list_again_ = milliseconds(1);
  Begin();
  Aim();
  List(Make("000007.sst", "table"));
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[0]->StopAt(1);
  replicas_[0]->AwaitStopped();
  EXPECT_OK(lane_->Await(milliseconds(1)));
  replicas_[0]->Fail(Unavailable("the wire is cut"));
  replicas_[0]->Go();
  EXPECT_OK(lane_->Await(milliseconds(1)));
}

TEST_F(BulkLaneTest, ABreakInTheMiddleOfAFileSendsOnlyTheRest) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  replicas_[0]->StopAt(6);  // connecting and the list come first, then pieces
  Aim();
  lane_->Set({table});
  replicas_[0]->AwaitStopped();
  replicas_[0]->Fail(Unavailable("the wire is cut"));
  replicas_[0]->Go();
  EXPECT_THAT(AwaitRefusal("hyperloopctl status"),
              StatusIs(Code::kUnavailable, HasSubstr("replica0 lacks 1 files")));
  replicas_[0]->Fail({});
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[0]->bytes(), 40u) << "a piece was sent twice";
  EXPECT_THAT(replicas_[0]->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, AnAcknowledgementEndsWithTheReplicaThatGaveIt) {
  Aim();
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  // Another replica, empty, under the same name.
  std::filesystem::remove_all(base_ + "/replica1");
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
}

TEST_F(BulkLaneTest, ALocalFileWithOtherBytesIsNoReplicas) {
  Aim();
  WholeFile table = Make("000007.sst", "as listed");
  Make("000007.sst", "otherwise");
  List(table);
  EXPECT_THAT(AwaitRefusal("000007.sst"), StatusIs(Code::kUnavailable, HasSubstr("000007.sst")));
  for (const auto& each : replicas_) EXPECT_TRUE(each->Finished().empty());
}

TEST_F(BulkLaneTest, ALocalFileThatWasCutIsNoReplicas) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  List(table);
  for (const auto& each : replicas_) each->StopAt(6);  // first connecting and the list
  Aim();
  for (const auto& each : replicas_) each->AwaitStopped();
  Make("000007.sst", "cut");
  for (const auto& each : replicas_) each->Go();
  EXPECT_THAT(AwaitRefusal("000007.sst"), StatusIs(Code::kUnavailable, HasSubstr("000007.sst")));
  for (const auto& each : replicas_) EXPECT_TRUE(each->Finished().empty());
}

// A rotten table of the primary, a cut one and a lost one are no reason to send nothing else.
TEST_F(BulkLaneTest, AFileThatCannotBeSentHoldsUpNoOther) {
  const WholeFile rotten = Make("000007.sst", "as listed"), cut = Make("000008.sst", "whole"),
                  lost = Make("000009.sst", "bytes"), sound = Make("000010.sst", "sound");
  Make("000007.sst", "otherwise");
  Make("000008.sst", "wh");
  Unlink("000009.sst");
  for (const WholeFile& each : {rotten, cut, lost, sound}) List(each);
  Aim();
  for (const auto& each : replicas_)
    EXPECT_TRUE(Eventually([&] { return !each->Finished().empty(); }));
  for (const auto& each : replicas_) EXPECT_THAT(each->Finished(), testing::ElementsAre(sound));
  EXPECT_THAT(
      AwaitRefusal("lacks 3 files"),
      StatusIs(Code::kUnavailable, AllOf(HasSubstr("lacks 3 files"), HasSubstr("000007.sst"))));
  Make("000007.sst", "as listed");
  Make("000008.sst", "whole");
  Make("000009.sst", "bytes");
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  for (const auto& each : replicas_) EXPECT_EQ(each->Finished().size(), 4u);
}

TEST_F(BulkLaneTest, AFileThatAReplicaDoesNotDropHoldsUpNoOther) {
  Aim();
  List(Make("000007.sst", "old"));
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[0]->FailDrops(PermissionDenied("the file is immutable"));
  const WholeFile fresh = Make("000008.sst", "fresh");
  Remove("000007.sst");
  List(fresh);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[0]->Finished(), testing::Contains(fresh));
  replicas_[0]->FailDrops({});
  EXPECT_TRUE(Eventually([&] { return replicas_[0]->Finished().size() == 1; }));
}

TEST_F(BulkLaneTest, AFileThatIsRemovedMeanwhileHoldsUpNobody) {
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  Unlink("000007.sst");
  Aim();
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_OK(lane_->Await(kLongWait));
    done = true;
  });
  Remove("000007.sst");
  waits.join();
  EXPECT_TRUE(done);
}

TEST_F(BulkLaneTest, OneSlowReplicaKeepsTheOtherFromNothing) {
  replicas_[0]->StopAt(1);
  Aim();
  replicas_[0]->AwaitStopped();
  const WholeFile table = Make("000007.sst", "bytes");
  List(table);
  while (replicas_[1]->Finished().empty()) std::this_thread::yield();
  EXPECT_THAT(lane_->Await(milliseconds(1)), StatusIs(Code::kUnavailable, HasSubstr("replica0")));
  replicas_[0]->Go();
  ASSERT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AReplicaThatIsLeftOutIsNotWaitedForUntilItHasCaughtUp) {
  const WholeFile table = Make("000007.sst", std::string(40, 'x'));
  List(table);
  std::vector<BulkLane::Target> targets(2);
  targets[0].connect = replicas_[0]->connect();
  lane_->SetTargets(std::move(targets), 2);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[1]->StopAt(1);
  Aim();
  replicas_[1]->AwaitStopped();
  ASSERT_OK(lane_->Await(kLongWait)) << "it is back, but has nothing yet";
  EXPECT_THAT(replicas_[1]->Finished(), testing::IsEmpty());
  replicas_[1]->Go();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  List(Make("000008.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("replica1"), StatusIs(Code::kUnavailable, HasSubstr("replica1")))
      << "it counts again";
}

// As a new replica does whose group is opened again before it has all tables.
TEST_F(BulkLaneTest, AReplicaThatLacksFilesAtTheBeginningIsNotWaitedForUntilItHasThem) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(2));
  StopPuts(std::array<size_t, 1>{2});
  ASSERT_OK(lane_->Await(kLongWait));
  const WholeFile table = Make("000008.sst", "more bytes");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[1]->Finished(), testing::Contains(table)) << "it had all, and counts";
  EXPECT_THAT(replicas_[2]->Finished(), testing::IsEmpty());
  replicas_[2]->Go();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  replicas_[2]->FailPuts(Unavailable("the disk is slow"));
  List(Make("000009.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("replica2"), StatusIs(Code::kUnavailable, HasSubstr("replica2")))
      << "it counts again";
}

// A majority can open the database, and must find each file: at least half hold it.
TEST_F(BulkLaneTest, IfTooFewHoldAllFilesTheOthersAreWaitedForUntilEnoughDo) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  StopPuts(std::array<size_t, 2>{1, 2});
  EXPECT_THAT(lane_->Await(milliseconds(1)),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("lacks"), HasSubstr("see to its disk"),
                                                 testing::Not(HasSubstr("when all replicas")))));
  replicas_[1]->Go();
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[2]->Finished(), testing::IsEmpty());
}

// What is new was never there, however late a replica says what it holds.
TEST_F(BulkLaneTest, AFileThatIsListedLaterIsWaitedForAtEachReplica) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(3));
  replicas_[2]->StopAt(1);
  Aim();
  replicas_[2]->AwaitStopped();
  replicas_[2]->FailPuts(Unavailable("the disk is slow"));
  List(Make("000008.sst", "more bytes"));
  replicas_[2]->Go();
  EXPECT_THAT(AwaitRefusal("the disk is slow"),
              StatusIs(Code::kUnavailable, HasSubstr("replica2 lacks")));
}

// A replica that can be reached but has no room makes no progress, however often it is reached.
TEST_F(BulkLaneTest, AReplicaThatTakesNoBytesIsNamedWithItsReason) {
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(
      AwaitRefusal("the disk is full"),
      StatusIs(Code::kUnavailable, AllOf(HasSubstr("replica1 lacks 1 files"),
                                         HasSubstr("the disk is full"), HasSubstr("make room"))));
  replicas_[1]->FailPuts({});
  ASSERT_OK(lane_->Await(kLongWait));
}

// More than half hold each file, so any majority that opens the database has it.
TEST_F(BulkLaneTest, AReplicaWhoseDiskIsFullHoldsUpNobodyAndComesBackByItself) {
  for (const Status& refusal : {NoSpace("the disk is full"), Internal("the disk fails")}) {
    SCOPED_TRACE(refusal.message());
    Use(3);
    Aim();
    replicas_[1]->FailPuts(refusal);
    const WholeFile table = Make("000007.sst", "bytes");
    List(table);
    EXPECT_OK(lane_->Await(kLongWait));
    for (const size_t i : {0, 2}) EXPECT_THAT(replicas_[i]->Finished(), testing::Contains(table));
    EXPECT_THAT(replicas_[1]->Finished(), testing::IsEmpty());
    replicas_[1]->FailPuts({});
    EXPECT_TRUE(Eventually([&] { return !replicas_[1]->Finished().empty(); }));
    EXPECT_TRUE(Eventually([&] { return lane_->Await(kLongWait, kLongWait, Holders::kAll).ok(); }));
    replicas_[1]->StopAt(1);
    List(Make("000008.sst", "more"));
    replicas_[1]->AwaitStopped();
    EXPECT_FALSE(lane_->Await(milliseconds(1)).ok()) << "it counts again";
    replicas_[1]->Go();
    ASSERT_OK(lane_->Await(kLongWait));
    for (const char* each : {"000007.sst", "000008.sst"}) Remove(each);
    ASSERT_TRUE(Eventually([&] { return replicas_[1]->Finished().empty(); }));
  }
}

TEST_F(BulkLaneTest, AFailingDiskIsNamedWithTheWayOutAndAnEndDoesNotWaitForIt) {
  replicas_[1]->FailPuts(PermissionDenied("Read-only file system"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("Read-only"),
              StatusIs(Code::kUnavailable, HasSubstr("the replica can write it")));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(lane_->Await(kLongWait, std::chrono::hours(1), Holders::kAll),
              StatusIs(Code::kUnavailable, HasSubstr("Read-only")));
  EXPECT_LT(std::chrono::steady_clock::now() - before, kLongWait);
}

// It answers each call, so it is never out of reach, and takes a byte a second.
TEST_F(BulkLaneTest, AReplicaThatTakesFilesTooSlowlyHoldsUpNobody) {
  Use(3);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile table = Make("000007.sst", "forty bytes of a table, of which few come");
  List(table);
  EXPECT_OK(lane_->Await(kLongWait)) << "the others hold it";
  const auto shown = [&] { return lane_->Standings()[2]; };
  EXPECT_TRUE(shown().slow);
  EXPECT_FALSE(shown().holds);
  EXPECT_EQ(shown().files, 1u);
  replicas_[2]->Go();
  EXPECT_TRUE(Eventually([&] { return replicas_[2]->Finished() == std::vector{table}; }));
  EXPECT_TRUE(Eventually([&] { return shown().holds && !shown().slow; }));
}

// The cause may be the primary's machine, which starves.
TEST_F(BulkLaneTest, WhereAllAreSlowAlikeTheLastOneIsWaitedFor) {
  Use(3);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  for (const auto& each : replicas_) each->SlowPuts([this] { seconds_ += 2; });
  replicas_[2]->StopAt(8);
  const WholeFile table = Make("000007.sst", std::string(20 * kPiece, 'x'));
  List(table);
  replicas_[2]->AwaitStopped();
  EXPECT_TRUE(Eventually([&] {
    return replicas_[0]->Finished().size() == 1 && replicas_[1]->Finished().size() == 1;
  }));
  EXPECT_THAT(AwaitRefusal("replica2"), StatusIs(Code::kUnavailable, HasSubstr("replica2")));
  EXPECT_FALSE(lane_->Standings()[2].slow);
  replicas_[2]->Go();
  EXPECT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[2]->Finished(), testing::ElementsAre(table));
}

// Nor is it waited for again because it holds all that is listed.
TEST_F(BulkLaneTest, ASlowReplicaHoldsUpNoFileThatLeaves) {
  Use(3);
  Aim();
  const WholeFile table = Make("000007.sst", "table"), other = Make("000008.sst", "other");
  List(table);
  List(other);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile log = Make("000004.log", "forty bytes of a log, of which few come on");
  lane_->SetLeaving({log});
  EXPECT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts())) << "the others hold it";
  replicas_[2]->AwaitStopped();
  Remove(other.name);
  EXPECT_OK(lane_->AwaitLeaving(log, kLongWait, lane_->interrupts()));
  replicas_[2]->Go();
  EXPECT_TRUE(Eventually([&] { return std::ranges::count(replicas_[2]->Finished(), log) == 1; }))
      << "it is sent the file all the same";
}

// Two are no more than half of four, so the third must hold it, too.
TEST_F(BulkLaneTest, ASlowReplicaIsWaitedForWhereTheOthersAreTooFew) {
  Use(3);
  std::vector<BulkLane::Target> targets;
  for (const auto& each : replicas_) targets.push_back({each->connect()});
  lane_->SetTargets(std::move(targets), 4);
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  List(Make("000007.sst", "forty bytes of a table, of which few come"));
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(replicas_[2]->Finished().size(), 1u);
}

// Then one of the others is lost, and one that is left holds the table alone.
TEST_F(BulkLaneTest, ASlowReplicaIsWaitedForAgainOnceAnotherIsGone) {
  Use(3);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait));
  replicas_[2]->Drip([this] { ++seconds_; });
  replicas_[2]->StopAt(8);
  const WholeFile table = Make("000007.sst", "forty bytes of a table, of which few come");
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  std::vector<BulkLane::Target> targets(3);
  for (const size_t i : {0, 2}) targets[i].connect = replicas_[i]->connect();
  lane_->SetTargets(std::move(targets), 3);
  EXPECT_THAT(AwaitRefusal("replica2"), StatusIs(Code::kUnavailable, HasSubstr("replica2")));
  replicas_[2]->Go();
  EXPECT_OK(lane_->Await(kLongWait));
  EXPECT_THAT(replicas_[2]->Finished(), testing::ElementsAre(table));
}

// However often its beginning is taken.
TEST_F(BulkLaneTest, AFileThatIsRefusedAtItsEndMakesNoProgress) {
  replicas_[1]->RefuseEnds();
  Aim();
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THAT(lane_->Await(seconds(1), kLongWait),
              StatusIs(Code::kUnavailable, HasSubstr("replica1")));
  EXPECT_LT(std::chrono::steady_clock::now() - before, kLongWait);
}

// As one whose addition was taken back.
TEST_F(BulkLaneTest, AReplicaThatIsNotOfTheGroupIsNotCounted) {
  Use(3);
  List(Make("000007.sst", "bytes"));
  replicas_[1]->StopAt(1);
  AimAtTwo(/*of=*/2);
  replicas_[1]->AwaitStopped();
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, OnlyThoseThatCaughtUpCount) {
  Use(3);
  replicas_[1]->FailPuts(Unavailable("gone"));
  List(Make("000007.sst", "content"));
  AimAtTwo(3);
  EXPECT_TRUE(Eventually([&] { return !lane_->FewCount(2); }));
  EXPECT_TRUE(lane_->FewCount(3));
  replicas_[1]->FailPuts({});
  EXPECT_TRUE(Eventually([&] { return !lane_->FewCount(3); }));
}

TEST_F(BulkLaneTest, AReplicaThatHasNotSaidWhatItHoldsIsNotKnownToHoldIt) {
  EXPECT_FALSE(lane_->FewCount(2)) << "there is nothing to hold";
  List(Make("000007.sst", "content"));
  for (const auto& each : replicas_) each->StopAt(1);
  Aim();
  for (const auto& each : replicas_) each->AwaitStopped();
  EXPECT_TRUE(lane_->FewCount(2));
  for (const auto& each : replicas_) each->Go();
  EXPECT_TRUE(Eventually([&] { return !lane_->FewCount(2); }));
}

TEST_F(BulkLaneTest, TellsWhatEachReplicaLacks) {
  Use(3);
  const WholeFile table = Make("000007.sst", "nine byte");
  List(table);
  replicas_[1]->StopAt(4);  // connecting, the list, and the first piece come before
  AimAtTwo(3);
  replicas_[1]->AwaitStopped();
  EXPECT_TRUE(test::Eventually([&] { return lane_->Standings()[0].files == 0; }));
  const std::vector<BulkLane::Standing> filling = lane_->Standings();
  ASSERT_EQ(filling.size(), 3u);
  EXPECT_EQ(filling[0].name, NameOf(0));
  EXPECT_TRUE(filling[0].holds);
  EXPECT_EQ(filling[1].files, 1u);
  EXPECT_EQ(filling[1].bytes, table.size - kPiece);
  EXPECT_FALSE(filling[1].holds);
  EXPECT_EQ(filling[2].files, 1u) << "nobody knows what an absent one holds";
  EXPECT_EQ(filling[2].bytes, table.size);
  EXPECT_FALSE(filling[2].holds);
  replicas_[1]->Go();
  EXPECT_TRUE(test::Eventually([&] { return lane_->Standings()[1].holds; }));
  EXPECT_EQ(lane_->Standings()[1].files, 0u);
  EXPECT_EQ(lane_->Standings()[1].bytes, 0u);
}

TEST_F(BulkLaneTest, AnAbsentReplicaIsCounted) {
  List(Make("000007.sst", "bytes"));
  replicas_[1]->StopAt(1);
  AimAtTwo(/*of=*/3);
  replicas_[1]->AwaitStopped();
  EXPECT_THAT(AwaitRefusal("replica1"), StatusIs(Code::kUnavailable, HasSubstr("replica1")))
      << "one of three is too few";
}

// The processor time of this program's thread of that name, in nanoseconds; 0: there is none.
uint64_t TimeOf(std::string_view thread) {
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    uint64_t time = 0;
    std::ifstream(each.path() / "comm") >> name;
    std::ifstream(each.path() / "schedstat") >> time;
    if (name == thread) return time;
  }
  return 0;
}

TEST_F(BulkLaneTest, AReplicaThatIsLeftOutCostsNoProcessorTime) {
  lane_->SetTargets(std::vector<BulkLane::Target>(2), 2);
  EXPECT_TRUE(Eventually([] {
    const uint64_t before = TimeOf("hl-bulk-1");
    std::this_thread::sleep_for(milliseconds(100));
    return before != 0 && TimeOf("hl-bulk-1") == before;
  }));
}

TEST_F(BulkLaneTest, OfTwoReplicasWhoseDisksAreFullOneIsWaitedFor) {
  Use(3);
  Aim();
  for (const size_t i : {1, 2}) replicas_[i]->FailPuts(NoSpace("the disk is full"));
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(AwaitRefusal("the disk is full"),
              StatusIs(Code::kUnavailable, HasSubstr("make room")));
  replicas_[2]->FailPuts({});
  EXPECT_OK(lane_->Await(kLongWait));
}

TEST_F(BulkLaneTest, AnEndDoesNotWaitForAReplicaWhoseDiskIsFull) {
  replicas_[1]->FailPuts(NoSpace("the disk is full"));
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(lane_->Await(kLongWait, std::chrono::hours(1), Holders::kAll),
              StatusIs(Code::kUnavailable, HasSubstr("the disk is full")));
}

// A message that cannot be read, the word that another primary was promised the replica: each is
// what one replica says.
TEST_F(BulkLaneTest, NoWordOfOneReplicaHoldsUpTheOthers) {
  Use(3);
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kAlreadyExists,
                          Code::kBusy, Code::kNoSpace, Code::kCorruption, Code::kPermissionDenied,
                          Code::kNotSupported, Code::kFenced, Code::kInternal}) {
    const Status word(code, std::string(CodeName(code)));
    SCOPED_TRACE(word.message());
    Begin();
    replicas_[1]->Fail(word);
    Aim();
    const WholeFile table = Make("000007.sst", word.message());
    List(table);
    EXPECT_OK(lane_->Await(kLongWait));
    for (const size_t i : {0, 2}) EXPECT_THAT(replicas_[i]->Finished(), testing::Contains(table));
    replicas_[1]->Fail({});
  }
}

// A replica that is quick with what costs nothing may not be slow with the rest for that.
TEST(TransferPaceTest, QuickCallsBuyNoTimeForSlowOnes) {
  TransferPace pace;
  const std::chrono::seconds call(1);
  bool slow = false;
  for (int i = 0; i < 10 && !slow; ++i) {
    for (int drops = 0; drops < 100; ++drops) pace.Note(0, 0, std::chrono::microseconds(10));
    slow = pace.Note(TransferPace::kLeast / 100, TransferPace::kLeast, call);
  }
  EXPECT_TRUE(slow);
}

TEST(TransferPaceTest, WhoIsSlowIsComparedWithTheOthers) {
  using std::chrono::seconds;
  TransferPace good, starved, worst;
  EXPECT_FALSE(TransferPace::IsSlowBeside(good.rate(), good.rate())) << "no call was made yet";
  for (int i = 0; i < 5; ++i) {
    good.Note(TransferPace::kLeast, TransferPace::kLeast, std::chrono::milliseconds(100));
    EXPECT_EQ(starved.Note(TransferPace::kLeast, TransferPace::kLeast, seconds(2)), i == 2);
    worst.Note(1, TransferPace::kLeast, seconds(2));
  }
  EXPECT_TRUE(starved.slow());
  EXPECT_TRUE(TransferPace::IsSlowBeside(starved.rate(), good.rate()));
  EXPECT_TRUE(TransferPace::IsSlowBeside(worst.rate(), starved.rate()));
  EXPECT_FALSE(TransferPace::IsSlowBeside(starved.rate(), starved.rate()));
}

TEST(TransferPaceTest, SmallFilesMakeNobodySlow) {
  TransferPace pace;
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(pace.Note(100, 100, std::chrono::milliseconds(20))) << i;
}

// What it takes anew each time is no progress.
TEST_F(BulkLaneTest, AReplicaThatLosesAFileAgainAndAgainIsNotWaitedForWithoutEnd) {
  const WholeFile lost = Make("000006.sst", "old"), table = Make("000007.sst", "new");
  constexpr int kMany = 50;
  std::atomic<int> lists = 0;
  replicas_[1]->Forget(lost, table, [&] {
    if (++lists == kMany) lane_->Interrupt();
  });
  Aim();
  List(lost);
  List(table);
  EXPECT_THAT(lane_->Await(milliseconds(300)), StatusIs(Code::kUnavailable));
  EXPECT_LT(lists, kMany);
}

TEST_F(BulkLaneTest, AReplicaThatSaysThatItTookNothingHoldsUpNobody) {
  Use(3);
  replicas_[1]->TakeNothing();
  Aim();
  List(Make("000007.sst", "bytes"));
  EXPECT_OK(lane_->Await(kLongWait));
}

// The local file is read again, and is sound.
TEST_F(BulkLaneTest, BytesThatOneReplicaAloneCallsWrongHoldUpNobody) {
  Use(3);
  UseMending();
  replicas_[1]->RefuseEnds();
  Aim();
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  EXPECT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(mends_, 0);
}

// Another primary has sealed the replica, so there is nothing to wait for.
TEST_F(BulkLaneTest, AReplicaThatRefusesAFormerOwnerEndsTheWait) {
  List(Make("000007.sst", "bytes"));
  for (const auto& each : replicas_) each->FailPuts(Fenced("epoch 2 is not the installed one"));
  Aim();
  EXPECT_THAT(lane_->Await(kLongWait), StatusIs(Code::kUnavailable, HasSubstr("epoch 2")));
}

TEST_F(BulkLaneTest, TheWaitEndsWhenItsLimitIsOverOrItIsInterrupted) {
  List(Make("000007.sst", "bytes"));
  EXPECT_THAT(lane_->Await(kLongWait, milliseconds(1)), StatusIs(Code::kUnavailable));
  std::atomic<bool> done{false};
  std::thread waits([&] {
    EXPECT_THAT(lane_->Await(kLongWait), StatusIs(Code::kUnavailable));
    done = true;
  });
  while (!done) lane_->Interrupt();
  waits.join();
}

}  // namespace
}  // namespace hyperloop::test
