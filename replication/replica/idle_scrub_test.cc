#include "replica/idle_scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "log/log_lane.h"
#include "support/append_durably.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

// A region that holds one file of several extents, whose primary has gone idle or closed.
class IdleScrubTest : public testing::Test {
 protected:
  IdleScrubTest() : group_(region_.bytes, 1, MemoryGroup::Mode::kImmediate) {
    const LogState log = ScanLog(region_.bytes, region_.info).value();
    auto journal =
        Journal::Create(&group_, region_.bytes, region_.info, log, &media_, JournalOptions())
            .value();
    EXPECT_OK(journal->AppendEpoch(1, TestConfiguration(1)));
    lane_ = LogLane::Load(std::move(journal), region_.bytes, region_.info, {}).value();
    file_ = lane_->Create("000004.log").value();
    for (int i = 0; i < 10; ++i) {
      EXPECT_OK(AppendDurably(*lane_, file_, std::string(1000, static_cast<char>('a' + i))));
    }
    EXPECT_OK(lane_->Checkpoint());
  }
  void Ticks(int count) {
    for (int i = 0; i < count; ++i) scrub_.Tick(1, false);
  }
  std::vector<std::byte>& replica() { return group_.image(0); }

  TestRegion region_{64 << 10, 32};
  MemoryGroup group_;
  RamMedia media_;
  std::unique_ptr<LogLane> lane_;
  FileId file_{};
  LogLines log_;
  IdleScrub scrub_{group_.image(0), &log_};
};

TEST_F(IdleScrubTest, SoundRegionIsPassedOverInSilence) {
  Ticks(3);
  EXPECT_EQ(scrub_.passes(), 1u);
  EXPECT_TRUE(log_.lines().empty());
  Ticks(IdleScrub::kRestTicks);
  EXPECT_EQ(scrub_.passes(), 1u) << "it rests";
  Ticks(2);
  EXPECT_EQ(scrub_.passes(), 2u);
}

TEST_F(IdleScrubTest, DamageIsNamedOnce) {
  replica()[region_.info.geometry.ExtentOffset(1) + 17] ^= std::byte{4};
  Ticks(3);
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], testing::AllOf(testing::HasSubstr("000004.log"),
                                              testing::HasSubstr("verify --repair")));
  Ticks(2 * IdleScrub::kRestTicks);
  EXPECT_EQ(log_.lines().size(), 1u);
  replica()[region_.info.geometry.ExtentOffset(1) + 17] ^= std::byte{4};
  Ticks(2 * IdleScrub::kRestTicks);
  ASSERT_EQ(log_.lines().size(), 2u);
  EXPECT_THAT(log_.lines()[1], testing::HasSubstr("sound again"));
}

// As far as a primary has come with a region that it fills: the superblock is there, the head is
// not.
TEST_F(IdleScrubTest, ARegionThatIsBeingFilledIsNotDamaged) {
  const std::vector<std::byte> whole = replica();
  for (const uint64_t head : kHeadOffsets)
    std::fill_n(replica().begin() + static_cast<std::ptrdiff_t>(head), 64, std::byte{0});
  for (int i = 0; i < 2 * IdleScrub::kScanTicks; ++i) scrub_.Tick(0, true);
  EXPECT_FALSE(scrub_.damaged());
  EXPECT_TRUE(log_.lines().empty());
  replica() = whole;
  for (int i = 0; i < 2 * IdleScrub::kScanTicks; ++i) scrub_.Tick(1, false);
  EXPECT_EQ(scrub_.passes(), 1u);
  EXPECT_FALSE(scrub_.damaged());
}

// A valid record lies where a log without a head would begin.
TEST_F(IdleScrubTest, ADamagedHeadOfAYoungLogIsFound) {
  for (const uint64_t head : kHeadOffsets)
    std::fill_n(replica().begin() + static_cast<std::ptrdiff_t>(head), 64, std::byte{0});
  Ticks(2 * IdleScrub::kScanTicks);
  EXPECT_TRUE(scrub_.damaged());
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], testing::HasSubstr("head"));
}

// What was found is gone when a primary has made the region equal to its own, however soon that is
// in use.
TEST_F(IdleScrubTest, DamageEndsWhenTheRegionIsFilledAnew) {
  std::byte& rotten = replica()[region_.info.geometry.ExtentOffset(1) + 17];
  rotten ^= std::byte{4};
  Ticks(3);
  ASSERT_TRUE(scrub_.damaged());
  scrub_.Tick(1, true);
  EXPECT_FALSE(scrub_.damaged());
  EXPECT_THAT(log_.lines().back(), testing::HasSubstr("written anew"));
  scrub_.Tick(1, false);
  Ticks(IdleScrub::kScanTicks + 3);
  ASSERT_TRUE(scrub_.damaged()) << "it was not mended after all";
  rotten ^= std::byte{4};
  ASSERT_OK(AppendDurably(*lane_, file_, "more"));
  scrub_.Tick(2, false);
  EXPECT_FALSE(scrub_.damaged()) << "nobody looked while it was filled";
}

// The log of an open but idle database has a tail that no checkpoint removes.
TEST_F(IdleScrubTest, NothingIsScrubbedWhileTheLogMoves) {
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(AppendDurably(*lane_, file_, "more"));
    Ticks(1);
  }
  EXPECT_EQ(scrub_.passes(), 0u);
  Ticks(IdleScrub::kScanTicks + 3);
  EXPECT_EQ(scrub_.passes(), 1u);
  EXPECT_TRUE(log_.lines().empty());
  replica()[region_.info.geometry.ExtentOffset(1) + 17] ^= std::byte{4};
  Ticks(IdleScrub::kRestTicks + 3);
  EXPECT_EQ(log_.lines().size(), 1u);
}

}  // namespace
}  // namespace hyperloop
