// Tests how local files are mended beside a bulk lane.
#include "files/local_mender.h"

#include "files/bulk_lane_fixture.h"

namespace hyperloop::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

using LocalMenderTest = BulkLaneFixture;

// A replica was refilled, and the primary's own table has rotted meanwhile.
TEST_F(LocalMenderTest, ADamagedLocalFileIsMendedFromAReplicaThatHoldsIt) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed");
  List(table);
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  std::filesystem::remove_all(base_ + "/replica1");
  Make("000007.sst", "otherwise");
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  EXPECT_EQ(Local("000007.sst"), "as listed");
  EXPECT_THAT(replicas_[1]->Finished(), testing::ElementsAre(table));
}

TEST_F(LocalMenderTest, WhatNoReplicaHoldsSoundIsNotMended) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed"), sound = Make("000008.sst", "sound");
  Make("000007.sst", "otherwise");
  List(table);
  List(sound);
  Aim();
  EXPECT_THAT(AwaitRefusal("no replica within reach"),
              StatusIs(Code::kUnavailable, AllOf(HasSubstr("000007.sst"), HasSubstr("damaged"))));
  EXPECT_EQ(Local("000007.sst"), "otherwise");
}

// An opening goes on without one that cannot be had then. Of three replicas one is away, so flushes
// wait for the other two.
TEST_F(LocalMenderTest, AnArchivedLogThatIsMissingHereIsBroughtAndSentSoThatFlushesGoOn) {
  UseMending();
  const WholeFile log = Make("archive/000004.log", "log bytes"),
                  table = Make("000007.sst", "table");
  List(log);
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  Unlink(log.name);
  AimAtTwo(/*of=*/3);
  List(table);
  ASSERT_OK(lane_->Await(kLongWait));
  EXPECT_EQ(Local(log.name), "log bytes");
  for (const auto& each : replicas_)
    EXPECT_THAT(each->Finished(), testing::UnorderedElementsAre(log, table));
  EXPECT_EQ(Damage(), "");
}

TEST_F(LocalMenderTest, AMissingArchivedLogIsBroughtThoughEveryReplicaHoldsIt) {
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("archive/000004.log", "log bytes"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  Unlink("archive/000004.log");
  EXPECT_TRUE(Eventually([&] { return Local("archive/000004.log") == "log bytes"; }));
}

// RocksDB may have deleted it.
TEST_F(LocalMenderTest, AMissingTableIsNotBrought) {
  UseMending();
  List(Make("000007.sst", "bytes"));
  ASSERT_NO_FATAL_FAILURE(BeginAnewWithHolders(1));
  Unlink("000007.sst");
  AimAtTwo(/*of=*/3);
  EXPECT_THAT(AwaitRefusal("no 000007.sst"),
              StatusIs(Code::kUnavailable, HasSubstr("no 000007.sst")))
      << "it was looked at again";
  EXPECT_EQ(mends_, 0);
}

TEST_F(LocalMenderTest, DamagedLocalFilesAreToldUntilTheyAreSoundOrNotListed) {
  UseMending();
  const WholeFile first = Make("000007.sst", "as listed"), second = Make("000008.sst", "too");
  Make("000007.sst", "otherwise");
  Make("000008.sst", "not");
  List(first);
  List(second);
  Aim();
  ASSERT_TRUE(Eventually([&] { return lane_->damaged() == 2; }));
  EXPECT_THAT(Damage(), AllOf(HasSubstr("mended: 2; the first is 000007.sst (9 B)"),
                              HasSubstr("no replica within reach holds it")));
  Make("000007.sst", "as listed");
  ASSERT_TRUE(Eventually([&] { return lane_->damaged() == 1; }));
  EXPECT_THAT(Damage(), HasSubstr("mended: 1; the first is 000008.sst"));
  Remove("000008.sst");
  EXPECT_EQ(lane_->damaged(), 0u);
  EXPECT_EQ(Damage(), "");
}

TEST_F(LocalMenderTest, ADamagedFileThatLeavesNoMoreIsNotTold) {
  UseMending();
  const WholeFile log = Make("000004.log", "as described");
  Make("000004.log", "otherwise");
  lane_->SetLeaving({log});
  Aim();
  ASSERT_TRUE(Eventually([&] { return lane_->damaged() == 1; }));
  lane_->SetLeaving({});
  EXPECT_EQ(lane_->damaged(), 0u);
  EXPECT_EQ(Damage(), "");
}

// Every replica holds the table, so that nothing is sent.
TEST_F(LocalMenderTest, ALocalFileThatRotsIsFoundAndMended) {
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("000007.sst", "as listed"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  Make("000007.sst", "otherwise");
  EXPECT_TRUE(Eventually([&] { return Local("000007.sst") == "as listed"; }));
}

// The slow one is asked first, and left in the middle; what both gave is wrong together.
TEST_F(LocalMenderTest, ASlowReplicaMendsWhereAFastOneGivesWrongBytes) {
  constexpr size_t kPieceOfGet = 40 << 10;
  const std::string content(3 * kPieceOfGet, 'x');
  scrub_tick_ = milliseconds(1);
  UseMending();
  List(Make("000007.sst", content));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  replicas_[0]->SlowGets(kPieceOfGet, [this] { seconds_ += 3; });
  replicas_[1]->RotGets();
  Make("000007.sst", "otherwise");
  EXPECT_TRUE(Eventually([&] { return Local("000007.sst") == content; }));
}

// A host that is short of descriptors has sound files.
TEST_F(LocalMenderTest, ALocalFileThatCannotBeOpenedIsNotDamaged) {
  UseMending();
  List(Make("000007.sst", "as listed"));
  Aim();
  ASSERT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
  std::filesystem::remove_all(base_ + "/replica1");
  FailReads(Internal("Too many open files"));
  Aim();
  constexpr int kSomeTries = 4;
  ASSERT_TRUE(Eventually([&] { return failed_reads_ >= kSomeTries; }));
  EXPECT_EQ(mends_, 0);
  FailReads(Corruption("the disk cannot read it"));
  ASSERT_TRUE(Eventually([&] { return mends_ > 0; }));
  EXPECT_OK(lane_->Await(kLongWait, kLongWait, Holders::kAll));
}

TEST_F(LocalMenderTest, ARefusalThatTheReplicasDiskCausesIsNoReasonToReadTheWholeLocalFile) {
  UseMending();
  for (const auto& each : replicas_) each->FailPuts(Internal("the disk fails"));
  List(Make("000007.sst", std::string(10 * kPiece, 'x')));
  Aim();
  for (const auto& each : replicas_) ASSERT_TRUE(Eventually([&] { return each->puts() >= 3; }));
  EXPECT_EQ(later_reads_, 0);
}

// The check of a large file takes long.
TEST_F(LocalMenderTest, ACheckOfALocalFileHoldsUpNeitherAnotherReplicaNorTheEndOfTheLane) {
  UseMending();
  const WholeFile table = Make("000007.sst", "as listed");
  Make("000007.sst", "otherwise");
  {
    const std::lock_guard lock(mutex_);
    endless_ = "000007.sst";
    endless_until_ = std::chrono::steady_clock::now() + kLongWait;
  }
  List(table);
  const int whole = 3 * static_cast<int>(replicas_.size());  // a try at each takes three pieces
  Aim();
  EXPECT_TRUE(Eventually([&] { return replicas_[0]->puts() + replicas_[1]->puts() > whole; }));
  lane_.reset();
  EXPECT_LT(std::chrono::steady_clock::now(), endless_until_);
}

}  // namespace
}  // namespace hyperloop::test
