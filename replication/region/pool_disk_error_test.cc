// A disk fails to write a pool's bytes. The kernel says so once and then treats the pages as clean.
// The pool goes on saying so until it is opened anew, and then shows what the disk holds.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "region/pool.h"
#include "support/failing_disk.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

constexpr uint64_t kBadDiskRegion = 4u << 20;
constexpr uint64_t kAt = 1u << 20, kElsewhere = 2u << 20;

class DiskErrorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.usable()) GTEST_SKIP() << "no loop device: this needs root";
    path_ = disk_.path() + "/a.pool";
    auto pool = Pool::Create(path_, kBadDiskRegion);
    ASSERT_OK(pool);
    pool_ = std::move(pool).value();
    ASSERT_EQ(pool_->media().kind(), MediaKind(rnic::Media::kFile));
    ASSERT_OK(Store(kAt, "before"));
  }
  Status Store(uint64_t at, const std::string& text) {
    std::memcpy(&pool_->region()[at], text.data(), text.size());
    return pool_->media().Persist(&pool_->region()[at], text.size());
  }
  std::string Text(uint64_t at, size_t size) const {
    return {reinterpret_cast<const char*>(&pool_->region()[at]), size};
  }
  void Reopen() {
    pool_.reset();
    auto pool = Pool::Open(path_);
    ASSERT_OK(pool);
    pool_ = std::move(pool).value();
  }

  test::FailingDisk disk_;
  std::string path_;
  std::unique_ptr<Pool> pool_;
};

TEST_F(DiskErrorTest, AFailedWriteIsNotForgotten) {
  ASSERT_TRUE(disk_.Fail());
  const Status failed = Store(kElsewhere, "lost");
  EXPECT_THAT(failed, StatusIs(Code::kUnavailable));
  disk_.Work();
  // Each of these would succeed in the kernel now, and the bytes would not be on the disk.
  for (const uint64_t at : {kElsewhere, kAt}) {
    const Status again = pool_->media().Persist(&pool_->region()[at], 1);
    ASSERT_THAT(again, StatusIs(Code::kUnavailable));
    EXPECT_THAT(again.message(), HasSubstr(path_));
    EXPECT_THAT(again.message(), HasSubstr("start"));
  }
  EXPECT_THAT(pool_->media().Persist(pool_->region().data(), kBadDiskRegion),
              StatusIs(Code::kUnavailable));
}

TEST_F(DiskErrorTest, WhoeverOpensAPoolAfterwardsSeesWhatTheDiskHolds) {
  ASSERT_TRUE(disk_.Fail());
  ASSERT_THAT(Store(kElsewhere, "lost"), StatusIs(Code::kUnavailable));
  disk_.Work();
  Reopen();
  EXPECT_EQ(Text(kAt, 6), "before");
  EXPECT_EQ(Text(kElsewhere, 4), std::string(4, '\0'));
  ASSERT_OK(Store(kElsewhere, "kept"));
  pool_.reset();
  ASSERT_TRUE(disk_.Remount());
  Reopen();
  EXPECT_EQ(Text(kElsewhere, 4), "kept");
}

// An RNIC daemon maps the file for a moment longer than the process that ended.
TEST_F(DiskErrorTest, OpeningWaitsUntilNobodyElseMapsThePool) {
  const auto mapping =
      static_cast<char*>(mmap(nullptr, kBadDiskRegion, PROT_READ | PROT_WRITE, MAP_SHARED,
                              pool_->fd(), static_cast<off_t>(pool_->region_file_offset())));
  ASSERT_NE(mapping, MAP_FAILED);
  ASSERT_TRUE(disk_.Fail());
  std::memcpy(mapping + kElsewhere, "lost", 4);
  ASSERT_THAT(pool_->media().Persist(pool_->region().data(), kBadDiskRegion),
              StatusIs(Code::kUnavailable));
  disk_.Work();
  pool_.reset();
  const Status refused = Pool::Open(path_).status();
  EXPECT_THAT(refused, StatusIs(Code::kBusy));
  EXPECT_THAT(refused.message(), HasSubstr(path_));
  std::thread unmaps([&] { munmap(mapping, kBadDiskRegion); });
  Reopen();
  unmaps.join();
  EXPECT_EQ(Text(kElsewhere, 4), std::string(4, '\0'));
}

TEST_F(DiskErrorTest, APoolIsRefusedWhileTheDiskFails) {
  ASSERT_TRUE(disk_.Fail());
  std::memcpy(&pool_->region()[kElsewhere], "lost", 4);
  pool_.reset();
  const Status refused = Pool::Open(path_).status();
  EXPECT_THAT(refused, StatusIs(Code::kUnavailable));
  EXPECT_THAT(refused.message(), HasSubstr(path_));
}

}  // namespace
}  // namespace hyperloop
