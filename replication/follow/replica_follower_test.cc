// What a follower keeps when the way to its replica, the replica's log or its own disk fails.
#include "follow/replica_follower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

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
      return NodeMark{1, 1, 0, std::min(test_.told, test_.primary.acked_seq())};
    }
    Result<NodeStatus> ReadStatus() override {
      HL_RETURN_IF_ERROR(test_.way);
      NodeStatus status;
      status.group = "group-1";
      status.replicas = test_.members;
      status.installed_epoch = 1;
      return status;
    }
    Result<NodeStatus> ReadPage() override { return Internal("not asked"); }
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
  Status way;                  // why the replica cannot be read
  bool damaged = false;        // the heads of its log are
  uint64_t told = UINT64_MAX;  // the primary says no later record to be acknowledged
  uint64_t read = 0;
  int connected = 0;
  ReplicaFollower::Time now = ReplicaFollower::Time::clock::now();
  Status last;
  std::vector<std::string> members{"a:1", "b:1", "c:1"};         // of the group; this one is b:1
  ReplicaFollower::Time vouched = ReplicaFollower::Time::max();  // up to which a majority vouches
  ReplicaFollower follower{
      [this]() -> Result<ReplicaFollower::Replica> {
        ++connected;
        return ReplicaFollower::Replica{nullptr, std::make_unique<View>(*this), "", "b:1"};
      },
      [this](std::span<const std::string> asked, uint64_t epoch, ReplicaFollower::Time since) {
        EXPECT_TRUE(std::ranges::equal(asked, members));
        EXPECT_EQ(epoch, 1u);
        return since <= vouched;
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

TEST_F(ReplicaFollowerTest, KnowsUpToWhenEverythingIsShown) {
  const ReplicaFollower::Time first = now;
  Reads();
  ASSERT_OK(last);
  EXPECT_EQ(follower.whole_as_of(), first);
  EXPECT_EQ(follower.as_of(), std::nullopt) << "nobody has been asked since";
  const ReplicaFollower::Time second = now;
  Reads();
  EXPECT_EQ(follower.as_of(), first);
  EXPECT_EQ(follower.whole_as_of(), second);

  // What is not known to be acknowledged is not shown, and the time stands still.
  const uint64_t shown = follower.seq();
  told = 0;
  WriteAndRest();
  for (int i = 0; i < 3; ++i) Reads();
  EXPECT_GT(follower.lag().records, 0u);
  EXPECT_GT(follower.lag().bytes, 0u);
  EXPECT_LE(follower.whole_as_of(), second + seconds(2)) << "before the write";
  told = UINT64_MAX;
  Reads();
  EXPECT_EQ(follower.lag().records, 0u);
  EXPECT_GT(follower.seq(), shown);
  EXPECT_EQ(follower.whole_as_of(), now - seconds(2));

  // The group may go on without this replica.
  const auto before = follower.as_of();
  vouched = ReplicaFollower::Time::min();
  for (int i = 0; i < 3; ++i) Reads();
  EXPECT_EQ(follower.as_of(), before);
  EXPECT_EQ(follower.whole_as_of(), now - seconds(2));
}

TEST_F(ReplicaFollowerTest, AReplicaThatIsNoMemberKnowsNothing) {
  members = {"a:1", "c:1"};
  for (int i = 0; i < 3; ++i) Reads();
  ASSERT_OK(last);
  EXPECT_TRUE(follower.shown());
  EXPECT_EQ(follower.as_of(), std::nullopt);
}

// A Reader takes the time from there.
TEST_F(ReplicaFollowerTest, NotesUpToWhenEverythingIsShown) {
  const auto mark = [this] {
    std::ifstream file(base + "/to/hyperloop-follower");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  Reads();
  const auto begun = std::chrono::system_clock::now();
  EXPECT_EQ(mark().find("as-of"), std::string::npos);
  Reads();
  unsigned long long first = 0, second = 0;
  const std::string text = mark();
  ASSERT_NE(text.find("\nas-of "), std::string::npos) << text;
  ASSERT_EQ(std::sscanf(text.c_str() + text.find("\nas-of "), " as-of %llu %llu", &first, &second),
            2);
  EXPECT_EQ(first, second);
  const std::chrono::system_clock::time_point noted{std::chrono::microseconds(first)};
  EXPECT_GT(noted, begun - std::chrono::minutes(10));
  EXPECT_LT(noted, begun) << "when the first look began";
}

}  // namespace
}  // namespace hyperloop
