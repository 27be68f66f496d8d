#include "softrnic/daemon/flush_threads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace hyperloop::softrnic {
namespace {

FileRange RangeAt(std::byte* byte) {
  FileRange range;
  range.begin = byte;
  range.end = byte + 1;
  return range;
}

// A disk that hangs for ranges of `slow` until the test releases it.
class FlushThreadsTest : public ::testing::Test {
 protected:
  FlushThreadsTest() {
    threads_.Start(
        [this] {
          std::lock_guard<std::mutex> lock(mutex_);
          ++wakes_;
          changed_.notify_all();
        },
        [] {});
  }
  bool MakeDurableByHand(const FileRange& range) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return range.begin != &slow_ || released_; });
    return range.begin != &bad_;
  }
  void Release() {
    std::lock_guard<std::mutex> lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  std::shared_ptr<FlushJob> Flush(uint64_t client, std::byte* what) {
    auto job = std::make_shared<FlushJob>();
    job->left = 1;
    EXPECT_TRUE(threads_.Flush(client, RangeAt(what), job));
    return job;
  }
  void WaitFor(const int& count, int least) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return count >= least; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int wakes_ = 0, begun_ = 0;
  bool released_ = false;
  std::byte slow_{}, fast_{}, bad_{};
  FlushThreads threads_{[this](const FileRange& range) { return MakeDurableByHand(range); }};
};

TEST_F(FlushThreadsTest, ADiskThatHangsHoldsUpItsClientAlone) {
  const auto slow = Flush(1, &slow_);
  const auto behind = Flush(1, &fast_);
  WaitFor(begun_, 1);
  for (int i = 0; i < 10; ++i) {
    const auto other = Flush(2, &fast_);
    WaitFor(wakes_, i + 1);
    EXPECT_EQ(other->left, 0u);
    EXPECT_FALSE(other->failed);
  }
  EXPECT_EQ(slow->left, 1u);
  EXPECT_EQ(behind->left, 1u);
  Release();
  WaitFor(wakes_, 12);
  EXPECT_EQ(slow->left, 0u);
  EXPECT_EQ(behind->left, 0u);
}

TEST_F(FlushThreadsTest, AFailureIsToldWhenTheWholeJobIsDone) {
  auto job = std::make_shared<FlushJob>();
  job->left = 2;
  threads_.Flush(1, RangeAt(&bad_), job);
  threads_.Flush(1, RangeAt(&fast_), job);
  WaitFor(wakes_, 1);
  EXPECT_EQ(job->left, 0u);
  EXPECT_TRUE(job->failed);
  EXPECT_EQ(wakes_, 1);
}

// However often a client comes and goes, it has one thread, and at most the allowed number of
// waiting ranges.
TEST_F(FlushThreadsTest, WhatAClientLeftBehindIsFlushedAndItMayComeAgain) {
  const auto slow = Flush(1, &slow_);
  WaitFor(begun_, 1);
  std::vector<std::shared_ptr<FlushJob>> left;
  for (size_t i = 1; i < FlushThreads::kMaxTasksOfClient; ++i) {
    left.push_back(Flush(1, &fast_));
    threads_.Gone(1);
  }
  auto refused = std::make_shared<FlushJob>();
  EXPECT_FALSE(threads_.Flush(1, RangeAt(&fast_), refused));
  Flush(2, &fast_);
  WaitFor(wakes_, 1);
  EXPECT_EQ(begun_, 2);
  Release();
  WaitFor(wakes_, 1 + static_cast<int>(FlushThreads::kMaxTasksOfClient));
  for (const auto& job : left) EXPECT_EQ(job->left, 0u);
}

TEST_F(FlushThreadsTest, ClientsAreBounded) {
  for (uint64_t client = 0; client < FlushThreads::kMaxClients; ++client) Flush(client, &slow_);
  EXPECT_FALSE(threads_.Flush(1000, RangeAt(&fast_), std::make_shared<FlushJob>()));
  Release();
  WaitFor(wakes_, FlushThreads::kMaxClients);
}

// The daemon ends although a disk hangs.
TEST_F(FlushThreadsTest, StopWaitsForNoDisk) {
  const auto slow = Flush(1, &slow_);
  WaitFor(begun_, 1);
  threads_.Stop();
  Release();
  while (slow->left != 0) std::this_thread::yield();
  EXPECT_EQ(wakes_, 0);
}

TEST(MakeDurableTest, AFileThatLostBytesIsNotDurable) {
  char name[] = "/tmp/hyperloop-flush-XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(unlink(name), 0);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  void* const at = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(at);
  bytes[5000] = std::byte{1};
  FileRange range{bytes + 5000, bytes + 5010, fd, 5010, nullptr, nullptr};
  EXPECT_TRUE(MakeDurable(range));
  ASSERT_EQ(ftruncate(fd, 5005), 0);
  EXPECT_FALSE(MakeDurable(range));
  range.failed = std::make_shared<std::atomic<bool>>(false);
  EXPECT_FALSE(MakeDurable(range));
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  EXPECT_FALSE(MakeDurable(range)) << "what failed once is believed again";
  range.failed.reset();
  EXPECT_TRUE(MakeDurable(range));
  range.fd = -1;
  munmap(at, 8192);
  EXPECT_FALSE(MakeDurable(range)) << "nothing is mapped there";
  close(fd);
}

}  // namespace
}  // namespace hyperloop::softrnic
