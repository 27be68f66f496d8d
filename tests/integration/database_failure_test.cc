// Parts of a real cluster die, or the disk is full, under a live RocksDB: writes fail with a clear
// error, nothing acknowledged is lost, and writing goes on once the part is back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/listener.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "support/database.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Records the greatest severity that RocksDB gave to an error.
class Severity : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override {
    worst_ = std::max<int>(worst_, status->severity());
  }
  int worst() const { return worst_; }

 private:
  std::atomic<int> worst_{0};
};

// Puts the keys of TestDatabase in order, on a thread of its own; a failed put is repeated until it
// succeeds.
class Writer {
 public:
  explicit Writer(TestDatabase& database) : database_(database), thread_([this] { Work(); }) {}
  ~Writer() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int acknowledged() const { return acknowledged_; }
  std::string first_failure() {
    const std::lock_guard lock(mutex_);
    return first_failure_;
  }
  bool AcknowledgesMore() {
    const int now = acknowledged();
    return Eventually([&] { return acknowledged() > now + 50; });
  }

 private:
  void Work() {
    while (!stop_) {
      const rocksdb::Status status =
          database_.Put(TestDatabase::KeyOf(acknowledged_), TestDatabase::ValueOf(acknowledged_));
      if (status.ok()) {
        ++acknowledged_;
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (first_failure_.empty()) first_failure_ = status.ToString();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // leaves the processor to others
    }
  }

  TestDatabase& database_;
  std::atomic<bool> stop_{false};
  std::atomic<int> acknowledged_{0};
  std::mutex mutex_;
  std::string first_failure_;  // guarded by mutex_
  std::thread thread_;
};

class DatabaseFailureTest : public SharedClusterTest<2, 32 << 20> {
 protected:
  // Each failure of a part is waited for so long.
  static constexpr std::chrono::seconds kAckTimeout{8};

  explicit DatabaseFailureTest(std::chrono::milliseconds ack_timeout = kAckTimeout)
      : database_(WithTimeout(cluster_.Options(), ack_timeout), cluster_.folder() + "/db") {}
  static StoreOptions WithTimeout(StoreOptions options, std::chrono::milliseconds ack_timeout) {
    options.ack_timeout = ack_timeout;
    return options;
  }
  void SetUp() override {
    SharedClusterTest::SetUp();
    if (HasFatalFailure()) return;
    severity_ = std::make_shared<Severity>();
    database_.options.listeners = {severity_};
  }

  // Writes while `kill` ends a part. Writes go on after `revive`, and a reopened database has every
  // key that was acknowledged before, between and after.
  void WriteThrough(const std::function<void()>& kill, const std::function<void()>& revive) {
    const rocksdb::Status opened = database_.Open();
    ASSERT_OK(opened);
    Writer writer(database_);
    ASSERT_TRUE(writer.AcknowledgesMore());
    kill();
    ASSERT_TRUE(Eventually([&] { return !writer.first_failure().empty(); }));
    EXPECT_THAT(writer.first_failure(), AllOf(HasSubstr("IO error"), HasSubstr(".log")));
    EXPECT_EQ(database_.FirstMissing(writer.acknowledged()), "") << "reads must go on";
    revive();
    EXPECT_TRUE(writer.AcknowledgesMore()) << "first failure: " << writer.first_failure();
    writer.Stop();
    EXPECT_LT(severity_->worst(), static_cast<int>(rocksdb::Status::Severity::kFatalError));
    ExpectWholeAfterReopen(writer.acknowledged());
  }
  void ExpectWholeAfterReopen(int keys) {
    EXPECT_EQ(database_.FirstMissing(keys), "");
    database_.Close();
    const rocksdb::Status opened = database_.Open();
    ASSERT_OK(opened);
    EXPECT_EQ(database_.FirstMissing(keys), "");
    database_.Close();
    const Result<std::vector<std::byte>> first = cluster_.ReplicaRegion(0);
    const Result<std::vector<std::byte>> second = cluster_.ReplicaRegion(1);
    ASSERT_OK(first);
    ASSERT_OK(second);
    EXPECT_EQ(cluster_.FirstDifferenceInUse(*first, *second), std::nullopt)
        << "the replicas differ";
  }

  TestDatabase database_;
  std::shared_ptr<Severity> severity_;
};

TEST_F(DatabaseFailureTest, ResumesAfterTheRnicDaemonWasRestarted) {
  WriteThrough([&] { cluster_.KillRnicd(); }, [&] { cluster_.RestartRnicd(); });
}

TEST_F(DatabaseFailureTest, ResumesAfterAReplicaWasRestarted) {
  WriteThrough([&] { cluster_.KillReplica(1); }, [&] { EXPECT_OK(cluster_.Restart()); });
}

// Resumes as an application that switched RocksDB's own attempts off.
TEST_F(DatabaseFailureTest, ResumesWhenToldTo) {
  database_.options.max_bgerror_resume_count = 0;
  WriteThrough([&] { cluster_.KillRnicd(); },
               [&] {
                 EXPECT_THAT(database_.db()->Resume(), StatusIs(rocksdb::Status::kIOError))
                     << "the daemon is still dead";
                 cluster_.RestartRnicd();
                 EXPECT_TRUE(Eventually([&] { return database_.db()->Resume().ok(); }));
               });
}

// The database directory on a small disk of its own.
class FullDiskTest : public DatabaseFailureTest {
 protected:
  FullDiskTest() : DatabaseFailureTest(std::chrono::minutes(1)) {}
  void SetUp() override {
    DatabaseFailureTest::SetUp();
    std::filesystem::create_directories(database_.directory());
    mounted_ = mount("tmpfs", database_.directory().c_str(), "tmpfs", 0, "size=4m") == 0;
    if (!mounted_) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
    database_.options.allow_fallocate = false;
    // Debian's RocksDB has its assertions on and aborts, with any FileSystem, when LOG meets a full
    // disk.
    database_.options.db_log_dir = cluster_.folder() + "/log";
  }
  void TearDown() override {
    database_.Close();
    if (mounted_) {
      EXPECT_EQ(umount(database_.directory().c_str()), 0);
    }
    DatabaseFailureTest::TearDown();
  }
  void MakeRoom() {
    ASSERT_EQ(mount("tmpfs", database_.directory().c_str(), "tmpfs", MS_REMOUNT, "size=32m"), 0);
  }
  // How many keys were acknowledged before the disk was full.
  int FillTheDisk() {
    for (int i = 0; i < 10000; ++i) {
      const rocksdb::Status status =
          database_.Put(TestDatabase::KeyOf(i), TestDatabase::ValueOf(i));
      if (status.ok()) continue;
      EXPECT_THAT(status, StatusIs(rocksdb::Status::kNoSpace));
      EXPECT_THAT(status.ToString(), AllOf(HasSubstr("No space left"), HasSubstr(".log")));
      return i;
    }
    ADD_FAILURE() << "the disk never became full";
    return 0;
  }

  bool mounted_ = false;
};

TEST_F(FullDiskTest, UnderTheLogLosesNothing) {
  ASSERT_OK(database_.Open());
  const int keys = FillTheDisk();
  ASSERT_GT(keys, 100);
  EXPECT_THAT(database_.Put("refused", "1"), StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_EQ(database_.FirstMissing(keys), "") << "reads must go on";
  database_.Close();
  MakeRoom();
  const rocksdb::Status opened = database_.Open();
  ASSERT_OK(opened);
  EXPECT_EQ(database_.FirstMissing(keys), "");
  EXPECT_THAT(database_.Get("refused"), HasSubstr("NotFound"));
  // The key that found the disk full is present as a whole, or not at all.
  EXPECT_THAT(database_.Get(TestDatabase::KeyOf(keys)),
              testing::AnyOf(TestDatabase::ValueOf(keys), HasSubstr("NotFound")));
  EXPECT_OK(database_.Put("after", "1"));
  ExpectWholeAfterReopen(keys);
}

TEST_F(FullDiskTest, AtOpenIsRefusedUntilThereIsRoom) {
  ASSERT_OK(database_.Open());
  ASSERT_OK(database_.Fill(2000));
  database_.Close();
  // The log has to be set to the group's content, and there is no room for it.
  for (const auto& [name, bytes] : FilesOf(database_.directory())) {
    if (name.ends_with(".log")) std::filesystem::resize_file(database_.directory() + "/" + name, 0);
  }
  std::ofstream ballast(database_.directory() + "/ballast");
  const std::string block(64 << 10, 'x');
  while (ballast.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
  ballast.close();
  const rocksdb::Status refused = database_.Open();
  EXPECT_THAT(refused.ToString(), AllOf(HasSubstr("No space left"), HasSubstr(".log")));
  database_.Close();
  MakeRoom();
  const rocksdb::Status opened = database_.Open();
  ASSERT_OK(opened);
  ExpectWholeAfterReopen(2000);
}

}  // namespace
}  // namespace hyperloop::test
