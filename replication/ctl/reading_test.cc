#include "ctl/reading.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "region/pool.h"
#include "support/status_matchers.h"

namespace hyperloop::ctl {
namespace {

// A pool whose reading waits until all others are being read, too. Its owner lives.
class MeetingView final : public NodeView {
 public:
  MeetingView(std::unique_ptr<NodeView> pool, std::latch& all)
      : pool_(std::move(pool)), all_(all) {}
  uint64_t region_size() const override { return pool_->region_size(); }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    return pool_->Read(offset, out);
  }
  Result<uint64_t> Heartbeat() override { return pool_->Heartbeat(); }
  Result<NodeMark> Mark() override { return pool_->Mark(); }
  Result<bool> OwnerLives(std::chrono::milliseconds watch) override {
    ++watched;
    HL_RETURN_IF_ERROR(pool_->OwnerLives(watch).status());
    return true;
  }
  Result<RegionImage> Snapshot() override { return pool_->Snapshot(); }
  Result<NodeStatus> ReadPage() override { return pool_->ReadPage(); }
  Result<NodeStatus> ReadStatus() override {
    all_.arrive_and_wait();
    return pool_->ReadStatus();
  }
  Result<NodeStatus> Check() override {
    all_.arrive_and_wait();
    return pool_->Check();
  }
  int watched = 0;

 private:
  const std::unique_ptr<NodeView> pool_;
  std::latch& all_;
};

// Three nodes, of which each has a region of another size, and one that cannot be reached.
class ReadingTest : public testing::Test {
 protected:
  ReadingTest() {
    std::string pattern = "/dev/shm/hyperloop-reading-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (size_t i = 0; i < kNodes; ++i) {
      const std::string path = folder_ + "/" + std::to_string(i);
      EXPECT_OK(Pool::Create(path, SizeOf(i)).status());
      auto pool = NodeView::OpenPool(path);
      EXPECT_OK(pool);
      auto view = std::make_unique<MeetingView>(std::move(*pool), all_);
      nodes_.push_back(view.get());
      views_.emplace_back(std::unique_ptr<NodeView>(std::move(view)));
    }
    views_.emplace_back(Unavailable("the last one is away"));
  }
  ~ReadingTest() override { std::filesystem::remove_all(folder_); }

  static uint64_t SizeOf(size_t node) { return (16 + 4 * node) << 20; }
  void ExpectOf(size_t node, const Result<NodeStatus>& read) {
    ASSERT_OK(read);
    EXPECT_EQ(read->region_size, SizeOf(node));
  }

  static constexpr size_t kNodes = 3;
  std::string folder_;
  std::latch all_{kNodes};
  std::vector<FoundView> views_;
  std::vector<MeetingView*> nodes_;
};

TEST_F(ReadingTest, StatusesAreReadAtTheSameTime) {
  const std::vector<Result<NodeStatus>> read = ReadAtOnce(views_);
  ASSERT_EQ(read.size(), kNodes + 1);
  for (size_t i = 0; i < kNodes; ++i) ExpectOf(i, read[i]);
  EXPECT_THAT(read.back(), StatusIs(Code::kUnavailable, "the last one is away"));
}

TEST_F(ReadingTest, SoAreThoseOfNodesWhoseOwnersMayLive) {
  const std::vector<Result<OwnedStatus>> read =
      ReadOwnedAtOnce(views_, [](size_t i) { return i != 1; });
  ASSERT_EQ(read.size(), kNodes + 1);
  for (size_t i = 0; i < kNodes; ++i) {
    ASSERT_OK(read[i]);
    EXPECT_EQ(read[i]->status.region_size, SizeOf(i));
    EXPECT_EQ(read[i]->owner_lives, i != 1);
    EXPECT_EQ(nodes_[i]->watched, i == 1 ? 0 : 1);
  }
  EXPECT_EQ(read.back().status().code(), Code::kUnavailable);
}

TEST_F(ReadingTest, SmallRegionsAreCheckedAtTheSameTime) {
  const std::vector<NodeView*> nodes(nodes_.begin(), nodes_.end());
  const std::vector<Result<NodeStatus>> checked = CheckAtOnce(nodes);
  ASSERT_EQ(checked.size(), kNodes);
  for (size_t i = 0; i < kNodes; ++i) ExpectOf(i, checked[i]);
  EXPECT_TRUE(CheckAtOnce({}).empty());
}

TEST(ChecksAtOnce, NeverHaveMoreInMemoryThanOneMayHave) {
  EXPECT_EQ(ChecksAtOnce(64 << 20, 5), 5u);
  EXPECT_EQ(ChecksAtOnce(kMostMemory / 3, 5), 3u);
  EXPECT_EQ(ChecksAtOnce(kMostMemory / 2 + 1, 5), 1u);
  EXPECT_EQ(ChecksAtOnce(4 * kMostMemory, 5), 1u);
}

}  // namespace
}  // namespace hyperloop::ctl
