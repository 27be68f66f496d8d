// With manual_wal_flush no batch is flushed by half, whatever fails.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/status_matchers.h"
#include "testing/errors_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::Options;
using rocksdb::WriteOptions;
using ::testing::HasSubstr;

// What brings the buffered batches to the group.
constexpr std::string_view kWays[] = {"FlushWAL", "FlushWAL and sync", "write with sync", "Flush"};

// With manual_wal_flush the memtables hold batches that no log has yet. RocksDB drops them from its
// buffer of the log when writing it fails. If it resumed, it would flush one family after the
// other, and a process that ends in between would leave such a batch by half.
class ManualFlushTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    env_ = std::make_unique<EnvWithShortPauses>(std::move(env_));
  }
  void TearDown() override {
    other_.reset();
    ErrorsTest::TearDown();
  }
  void OpenBoth() {
    Options options = MakeOptions();
    options.manual_wal_flush = true;
    options.max_bgerror_resume_count = 0;  // the test calls Resume itself, at a known time
    options.create_missing_column_families = true;
    other_.reset();
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options, directory_,
                                {{rocksdb::kDefaultColumnFamilyName, options}, {"other", options}},
                                &handles, &db));
    db_.reset(db);
    ASSERT_OK(db->DestroyColumnFamilyHandle(handles[0]));
    other_ = {handles[1], [db](rocksdb::ColumnFamilyHandle* handle) {
                static_cast<void>(db->DestroyColumnFamilyHandle(handle));
              }};
  }
  rocksdb::Status WriteToBoth(const std::string& key, bool sync = false) {
    rocksdb::WriteBatch batch;
    EXPECT_OK(batch.Put(key, "1"));
    EXPECT_OK(batch.Put(other_.get(), key, "1"));
    WriteOptions options;
    options.sync = sync;
    return db_->Write(options, &batch);
  }
  rocksdb::Status Bring(std::string_view way) {
    if (way == "FlushWAL") return db_->FlushWAL(false);
    if (way == "FlushWAL and sync") return db_->FlushWAL(true);
    if (way == "write with sync") return WriteToBoth("synced", true);
    return db_->Flush(rocksdb::FlushOptions());
  }
  std::string GetOther(const std::string& key) {
    std::string value;
    const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), other_.get(), key, &value);
    return status.ok() ? value : status.ToString();
  }

  void ReopenAfterAKill() {
    const auto dead = std::move(other_);
    Crash();
    group_->ForgetFaults();
    ASSERT_NO_FATAL_FAILURE(OpenBoth());
  }
  void ExpectWhole(const std::vector<std::string>& keys) {
    for (const std::string& key : keys)
      EXPECT_EQ(Get(key), GetOther(key)) << key << " is there by half";
  }

  std::shared_ptr<rocksdb::ColumnFamilyHandle> other_;
};

TEST_F(ManualFlushTest, BatchesThatNoLogHasAreNotFlushedOneFamilyAfterTheOther) {
  for (const std::string_view way : kWays) {
    for (const Code code : {Code::kTimedOut, Code::kUnavailable, Code::kNoSpace}) {
      SCOPED_TRACE(std::string(way) + ", " + std::string(CodeName(code)));
      TearDown();
      SetUp();
      ASSERT_NO_FATAL_FAILURE(OpenBoth());
      ASSERT_OK(WriteToBoth("before"));
      ASSERT_OK(db_->FlushWAL(true));
      ASSERT_OK(WriteToBoth("buffered"));
      group_->Inject({"append", code, false, 0});
      const rocksdb::Status failed = Bring(way);
      EXPECT_THAT(failed, StatusIs(rocksdb::Status::kIOError));
      EXPECT_FALSE(failed.IsNoSpace());  // RocksDB would resume by itself
      EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database when the cause is gone"));
      group_->Inject({"list", Code::kTimedOut, false, 1});  // the second family's table
      EXPECT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOError));
      EXPECT_THAT(WriteToBoth("after"), StatusIs(rocksdb::Status::kIOError));
      ReopenAfterAKill();
      EXPECT_EQ(Get("before") + GetOther("before"), "11");
      ExpectWhole({"buffered", "synced", "after"});
      ASSERT_OK(WriteToBoth("later", true));
    }
  }
}

// Where no write of a log failed, RocksDB still has the batches in its buffer, and writes them to
// the log before it flushes a family.
TEST_F(ManualFlushTest, BatchesAreWholeAfterResuming) {
  for (const std::string_view way : kWays) {
    for (const char* call : {"create", "rename", "list", "await files"}) {
      SCOPED_TRACE(std::string(way) + ", " + call);
      TearDown();
      SetUp();
      ASSERT_NO_FATAL_FAILURE(OpenBoth());
      ASSERT_OK(WriteToBoth("buffered"));
      group_->Inject({call, Code::kTimedOut, false, 0});
      static_cast<void>(Bring(way).ok());
      static_cast<void>(WriteToBoth("again").ok());
      static_cast<void>(db_->Flush(rocksdb::FlushOptions()).ok());
      group_->Inject({"list", Code::kTimedOut, false, 1});
      static_cast<void>(db_->Resume().ok());
      ReopenAfterAKill();
      ExpectWhole({"buffered", "again", "synced"});
    }
  }
}

}  // namespace
}  // namespace hyperloop::plugin::testing
