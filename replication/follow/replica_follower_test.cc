// What a follower keeps when the way to its replica, the replica's log or its own disk fails.
#include "follow/replica_follower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "support/status_matchers.h"
#include "testing/busy_primary_fixture.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ReplicaFollowerTest : public testing::Test {
 protected:
  ReplicaFollowerTest() { primary.Rest(); }
  ~ReplicaFollowerTest() override { fs::remove_all(base); }

  // A view of the primary's member, which fails when the test says so.
  class View final : public NodeView {
   public:
    explicit View(ReplicaFollowerTest& test) : test_(test) {}
    uint64_t region_size() const override { return test_.primary.member().size(); }
    Status Read(uint64_t offset, std::span<std::byte> out) override {
      HL_RETURN_IF_ERROR(test_.way);
      test_.read += out.size();
      std::ranges::copy(test_.primary.member().subspan(offset, out.size()), out.begin());
      for (const uint64_t head : kHeadOffsets)
        if (test_.damaged && offset == 0) out[head] ^= std::byte{1};
      return {};
    }
    Result<NodeMark> Mark() override {
      HL_RETURN_IF_ERROR(test_.way);
      return NodeMark{1, 1, 0, test_.primary.acked_seq()};
    }
    Result<NodeStatus> ReadStatus() override {
      HL_RETURN_IF_ERROR(test_.way);
      NodeStatus status;
      status.group = "group-1";
      return status;
    }
    Result<uint64_t> Heartbeat() override { return Internal("not asked"); }
    Result<bool> OwnerLives(milliseconds) override { return Internal("not asked"); }
    Result<RegionImage> Snapshot() override { return Internal("not asked"); }
    Result<NodeStatus> Check() override { return Internal("not asked"); }

   private:
    ReplicaFollowerTest& test_;
  };

  // The bytes that a look reads.
  uint64_t Reads() {
    const uint64_t before = read;
    last = follower.Look(now).status();
    now += seconds(2);
    return read - before;
  }
  void WriteAndRest() {
    primary.Write();
    primary.Acknowledge();
  }
  // Whether the newest file is shown as it is now.
  void ExpectAllShown() {
    const auto [newest, size] = primary.Acknowledge();
    EXPECT_OK(follower.Look(now));
    EXPECT_EQ(fs::file_size(base + "/to/" + BusyPrimary::Name(newest)), size);
  }

  static std::string MakeFolder() {
    std::string pattern = testing::TempDir() + "/hyperloop-follower-XXXXXX";
    return mkdtemp(pattern.data());
  }

  const std::string base = MakeFolder();
  BusyPrimary primary{3};
  Status way;            // why the replica cannot be read
  bool damaged = false;  // the heads of its log are
  uint64_t read = 0;
  int connected = 0;
  ReplicaFollower::Time now{};
  Status last;
  ReplicaFollower follower{
      [this]() -> Result<ReplicaFollower::Replica> {
        ++connected;
        return ReplicaFollower::Replica{nullptr, std::make_unique<View>(*this), ""};
      },
      base + "/to",
      {seconds(60)}};
};

TEST_F(ReplicaFollowerTest, ReadsOnlyWhatIsNewAfterALocalError) {
  const uint64_t whole = Reads();
  ASSERT_OK(last);
  EXPECT_TRUE(follower.shown());
  // The name of the next file is taken.
  const std::string taken = base + "/to/" + BusyPrimary::Name(primary.Acknowledge().first + 1);
  fs::create_directories(taken + "/occupied");
  const uint64_t newest = primary.Acknowledge().first;
  while (primary.Acknowledge().first == newest) primary.Write();
  for (int i = 0; i < 5; ++i) {
    EXPECT_LT(Reads(), whole / 2) << "look " << i;
    EXPECT_FALSE(last.ok());
    EXPECT_EQ(follower.pause(), seconds(1)) << "it costs little";
  }
  EXPECT_EQ(connected, 1) << "the way works";
  fs::remove_all(taken);
  EXPECT_LT(Reads(), whole / 2);
  ASSERT_OK(last);
  ExpectAllShown();
}

TEST_F(ReplicaFollowerTest, ReadsOnlyWhatIsNewAfterTheWayFailed) {
  const uint64_t whole = Reads();
  ASSERT_OK(last);
  way = Unavailable("the RNIC daemon is gone");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Reads(), 0u);
    EXPECT_FALSE(last.ok());
  }
  EXPECT_GE(connected, 3);
  WriteAndRest();
  way = {};
  EXPECT_LT(Reads(), whole / 2);
  ASSERT_OK(last);
  ExpectAllShown();
}

TEST_F(ReplicaFollowerTest, PausesDoubleWhileTheWholeRegionIsReadInVain) {
  ASSERT_OK(follower.Look(now));
  damaged = true;
  Reads();
  EXPECT_FALSE(last.ok());
  std::vector<milliseconds> pauses;
  for (int i = 0; i < 9; ++i) {
    EXPECT_GT(Reads(), 0u);
    EXPECT_FALSE(last.ok());
    pauses.push_back(follower.pause());
  }
  EXPECT_EQ(pauses[0], seconds(1));
  EXPECT_EQ(pauses[1], seconds(2));
  EXPECT_EQ(pauses[2], seconds(4));
  EXPECT_EQ(pauses.back(), seconds(64));
  damaged = false;
  WriteAndRest();
  Reads();
  ASSERT_OK(last);
  EXPECT_EQ(follower.pause(), milliseconds(10));
  ExpectAllShown();
}

}  // namespace
}  // namespace hyperloop
