// A region is followed while its owner writes. What is shown must be a prefix of the log in which
// everything is acknowledged, and must come to hold all of it.
#include "follow/log_follower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "log/file_table.h"
#include "support/status_matchers.h"
#include "testing/busy_primary_fixture.h"

namespace hyperloop {
namespace {

using Progress = LogFollower::Progress;

class Followed {
 public:
  explicit Followed(uint64_t seed, uint64_t percent = 0) : primary(seed, &decided), busy(percent) {}

  // The files that are shown hold what their names say. Returns the newest one's number.
  uint64_t ExpectWhatNamesSay() const {
    const Result<FileTable> table = FileTable::Load(follower.image(), follower.info());
    EXPECT_OK(table);
    if (!table.ok()) return 0;
    uint64_t last = 0;
    for (const FileInfo& file : table->List()) {
      const uint64_t number = std::stoull(file.name.substr(1));
      last = std::max(last, number);
      std::string held(file.size, '\0');
      table->ReadBytes(follower.image(), follower.info(), SlotOf(file.id), 0, held);
      EXPECT_TRUE(held == BusyPrimary::Bytes(number, 0, file.size)) << file.name;
    }
    return last;
  }
  std::optional<uint64_t> SizeOf(const std::string& name) const {
    for (const FileInfo& file : FileTable::Load(follower.image(), follower.info())->List())
      if (file.name == name) return file.size;
    return std::nullopt;
  }

  // Up to where the primary's program has decided what it takes back.
  std::atomic<uint64_t> decided{UINT64_MAX};
  BusyPrimary primary;
  NodeMark mark{1, 1, 0};
  LogFollower follower{[this](uint64_t offset, std::span<std::byte> out) -> Status {
                         while (!out.empty()) {
                           while (primary.Luck(busy)) primary.Write();
                           const size_t piece = std::min<size_t>(out.size(), 2048);
                           const auto bytes = primary.member().subspan(offset, piece);
                           std::ranges::copy(bytes, out.begin());
                           out = out.subspan(piece);
                           offset += piece;
                         }
                         return {};
                       },
                       [this]() -> Result<NodeMark> { return mark; }, primary.member().size()};
  uint64_t busy;  // percent: how often the primary writes while the follower reads
};

TEST(LogFollowerTest, ShowsPrefixesInWhichEverythingIsAcknowledged) {
  uint64_t shown = 0, anew = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Followed followed(seed, seed % 40);
    uint64_t before = 0;
    for (int look = 0; look < 40; ++look) {
      // So much is written between two looks now and then that the ring is overwritten.
      if (look % 10 == 9) {
        for (int i = 0; i < 60; ++i) followed.primary.Write();
      }
      const Result<Progress> progress = followed.follower.CatchUp();
      if (progress.status().code() == Code::kBusy) continue;
      ASSERT_OK(progress);
      anew += *progress == Progress::kReadAnew ? 1 : 0;
      if (!followed.follower.shows()) continue;
      ++shown;
      EXPECT_LE(followed.follower.seq(), followed.primary.acked_seq());
      EXPECT_GE(followed.follower.seq(), before) << "what was shown is taken back";
      before = followed.follower.seq();
      followed.ExpectWhatNamesSay();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(shown, 4000u);
  EXPECT_GT(anew, 300u) << "the log is never overwritten before it is read";
}

TEST(LogFollowerTest, ShowsAllOnceThePrimaryRests) {
  Followed followed(7);
  ASSERT_OK(followed.follower.CatchUp());
  for (int i = 0; i < 20; ++i) followed.primary.Write();
  const auto [newest, size] = followed.primary.Acknowledge();
  followed.primary.Rest();
  const Result<Progress> progress = followed.follower.CatchUp();
  ASSERT_OK(progress);
  ASSERT_TRUE(followed.follower.shows());
  EXPECT_EQ(followed.ExpectWhatNamesSay(), newest);
  EXPECT_EQ(followed.SizeOf(BusyPrimary::Name(newest)), size);
  EXPECT_EQ(followed.follower.lag().records, 0u);
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kNone);
}

// Such a record may be durable everywhere. What its primary still takes back must not be seen, also
// if the head passes it because the ring is full, or the follower reads everything anew.
TEST(LogFollowerTest, ShowsNothingThatThePrimaryMayTakeBack) {
  uint64_t shown = 0, anew = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Followed followed(seed, seed % 20);
    for (int look = 0; look < 30; ++look) {
      if (look % 3 == 0) followed.decided = followed.primary.acked_seq() + seed % 3;
      // The ring holds less than this.
      for (int i = look % 10 == 9 ? 60 : 5; i > 0; --i) followed.primary.Write();
      if (look % 4 == 3) followed.primary.Rest();
      followed.mark.acked =
          std::min(followed.primary.acked_seq(), followed.decided.load());  // as a session tells
      const Result<Progress> progress = followed.follower.CatchUp();
      if (progress.status().code() == Code::kBusy) continue;
      ASSERT_OK(progress);
      anew += *progress == Progress::kReadAnew ? 1 : 0;
      if (!followed.follower.shows()) continue;
      ++shown;
      ASSERT_LE(followed.follower.seq(), followed.decided.load());
      followed.ExpectWhatNamesSay();
      if (testing::Test::HasFailure()) return;
    }
    followed.decided = UINT64_MAX;
    followed.busy = 0;
    followed.primary.Write();
    const auto [newest, size] = followed.primary.Acknowledge();
    followed.primary.Rest();
    ASSERT_OK(followed.follower.CatchUp());
    ASSERT_TRUE(followed.follower.shows());
    EXPECT_EQ(followed.SizeOf(BusyPrimary::Name(newest)), size);
  }
  EXPECT_GT(shown, 300u);
  EXPECT_GT(anew, 60u);
}

// While the primary is idle no later record says that the last one was acknowledged.
TEST(LogFollowerTest, TheHeartbeatTellsOfTheLastRecord) {
  Followed followed(7);
  ASSERT_OK(followed.follower.CatchUp());
  for (int i = 0; i < 20; ++i) followed.primary.Write();
  const auto [newest, size] = followed.primary.Acknowledge();
  ASSERT_OK(followed.follower.CatchUp());
  ASSERT_LT(followed.follower.seq(), followed.primary.acked_seq());
  followed.mark.acked = followed.primary.acked_seq();
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kAppended);
  EXPECT_EQ(followed.follower.seq(), followed.primary.acked_seq());
  EXPECT_EQ(followed.SizeOf(BusyPrimary::Name(newest)), size);
}

// No checksum covers the word beside the heartbeat.
TEST(LogFollowerTest, AWordThatExceedsTheLogIsNotBelieved) {
  Followed followed(7);
  followed.primary.Rest();
  followed.mark.acked = uint64_t{1} << 47;
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kReadAnew);
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kNone) << "it is read anew for ever";
  followed.primary.Write();
  followed.mark.acked = 0;
  followed.primary.Rest();
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kAppended);
  EXPECT_LE(followed.follower.seq(), followed.primary.acked_seq());
}

TEST(LogFollowerTest, ShowsNothingNewBetweenASealAndItsInstallation) {
  Followed followed(3);
  followed.primary.Rest();
  ASSERT_EQ(followed.follower.CatchUp().value(), Progress::kReadAnew);
  const uint64_t before = followed.follower.seq();
  followed.mark.sealed = 2;
  for (int i = 0; i < 5; ++i) followed.primary.Write();
  followed.primary.Rest();
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kAwaitsPrimary);
  EXPECT_EQ(followed.follower.seq(), before);
  followed.mark.installed = 2;
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kReadAnew)
      << "the region may have changed without records";
  EXPECT_GT(followed.follower.seq(), before);
}

TEST(LogFollowerTest, AReplicaThatWasNeverTakenShowsNothing) {
  Followed followed(3);
  followed.mark = {};
  EXPECT_EQ(followed.follower.CatchUp().value(), Progress::kAwaitsPrimary);
  EXPECT_FALSE(followed.follower.shows());
}

}  // namespace
}  // namespace hyperloop
