// A real RocksDB over a group whose data area or file table is full: calls that free space, close
// or open always find room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/database.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class DatabaseSpaceTest : public SharedClusterTest<1, 32 << 20> {
 protected:
  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.space_timeout = std::chrono::milliseconds(100);
    options.journal_size = 8 << 20;  // nobody waits for space in it, however slow the replica is
    return options;
  }
};

// As TestDatabase, with transactions.
class Transactions {
 public:
  explicit Transactions(const StoreOptions& store, const std::string& directory)
      : database_(store, directory) {
    // The area is full before the memtable is. (A log whose first write fails cannot be resumed.)
    database_.options.write_buffer_size = 64 << 20;
  }
  ~Transactions() { Close(); }

  rocksdb::Status Open() {
    if (rocksdb::Status made = database_.MakeEnv(); !made.ok()) return made;
    database_.options.env = database_.env();
    rocksdb::TransactionDB* opened = nullptr;
    const rocksdb::Status status = rocksdb::TransactionDB::Open(
        database_.options, rocksdb::TransactionDBOptions(), database_.directory(), &opened);
    db_.reset(opened);
    return status;
  }
  void Close() {
    db_.reset();
    database_.Close();
  }
  rocksdb::TransactionDB* operator->() const { return db_.get(); }
  rocksdb::Options& options() { return database_.options; }

  std::unique_ptr<rocksdb::Transaction> Prepared(const std::string& name) {
    std::unique_ptr<rocksdb::Transaction> transaction(
        db_->BeginTransaction(rocksdb::WriteOptions()));
    EXPECT_OK(transaction->SetName(name));
    EXPECT_OK(transaction->Put("prepared " + name, "1"));
    const rocksdb::Status prepared = transaction->Prepare();
    EXPECT_OK(prepared);
    return transaction;
  }
  // Puts without flushes until there is no room; returns the number of acknowledged keys.
  int Fill(int from = 0) {
    const std::string value(64 << 10, 'v');
    for (int i = from; i < from + 10000; ++i) {
      const rocksdb::Status put = db_->Put(rocksdb::WriteOptions(), TestDatabase::KeyOf(i), value);
      if (put.ok()) continue;
      full_ = put.ToString();
      return i;
    }
    return -1;
  }
  const std::string& full() const { return full_; }

 private:
  TestDatabase database_;
  std::unique_ptr<rocksdb::TransactionDB> db_;
  std::string full_;
};

// The area is full of logs that a prepared transaction keeps, so that no flush frees any.
TEST_F(DatabaseSpaceTest, APreparedTransactionCanBeRolledBackWhenTheDataAreaIsFull) {
  Transactions database(Options(), cluster_.folder() + "/db");
  rocksdb::Status opened = database.Open();
  ASSERT_OK(opened);
  auto transaction = database.Prepared("t");
  const int keys = database.Fill();
  ASSERT_GT(keys, 0);
  EXPECT_THAT(database.full(), HasSubstr("end prepared transactions"));
  // RocksDB resumes by itself: it flushes what is in memory and begins a new log.
  rocksdb::Status resumed;
  EXPECT_TRUE(Eventually([&] {
    resumed = database->GetRootDB()->Resume();
    return resumed.ok();
  })) << resumed.ToString();
  const rocksdb::Status rolled = transaction->Rollback();
  EXPECT_OK(rolled);
  transaction.reset();
  const rocksdb::Status flushed = database->Flush(rocksdb::FlushOptions());
  EXPECT_OK(flushed);
  const rocksdb::Status put = database->Put(rocksdb::WriteOptions(), "after", "1");
  EXPECT_OK(put);
  database.Close();
  opened = database.Open();
  ASSERT_OK(opened);
  std::string value;
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), "after", &value));
  EXPECT_THAT(database->Get(rocksdb::ReadOptions(), "prepared t", &value),
              StatusIs(rocksdb::Status::kNotFound));
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), TestDatabase::KeyOf(keys - 1), &value));
}

// The same, closed while it is full: the next opening finds the transaction, and ends it.
TEST_F(DatabaseSpaceTest, AFullDataAreaIsOpenedAndItsTransactionCommitted) {
  Transactions database(Options(), cluster_.folder() + "/db");
  database.options().avoid_flush_during_recovery = false;
  ASSERT_OK(database.Open());
  auto transaction = database.Prepared("t");
  const int keys = database.Fill();
  ASSERT_GT(keys, 0);
  transaction.reset();
  database.Close();
  const rocksdb::Status opened = database.Open();
  ASSERT_OK(opened);
  std::vector<rocksdb::Transaction*> recovered;
  database->GetAllPreparedTransactions(&recovered);
  ASSERT_EQ(recovered.size(), 1u);
  const rocksdb::Status committed = recovered.front()->Commit();
  EXPECT_OK(committed);
  delete recovered.front();
  EXPECT_OK(database->Flush(rocksdb::FlushOptions()));
  // RocksDB deletes logs that it recovered, rather than wrote, with the next opening.
  database.Close();
  ASSERT_OK(database.Open());
  const rocksdb::Status put = database->Put(rocksdb::WriteOptions(), "after", "1");
  EXPECT_OK(put);
  std::string value;
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), "prepared t", &value));
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), TestDatabase::KeyOf(keys - 1), &value));
}

// Old records of a MANIFEST take the area, long before it is as long as RocksDB lets it become.
TEST_F(DatabaseSpaceTest, ADataAreaFullOfAManifestIsOpenedAndFreed) {
  TestDatabase database(Options(), cluster_.folder() + "/db");
  database.options.disable_auto_compactions = true;
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Put("kept", "1"));
  // A table's first and last key are in its record.
  const std::string key(1 << 20, 'k');
  const auto turn = [&] {
    rocksdb::Status status = database.Put(key, "1");
    if (status.ok()) status = database.db()->Flush(rocksdb::FlushOptions());
    if (status.ok()) status = database.db()->Delete(rocksdb::WriteOptions(), key);
    if (status.ok()) status = database.db()->CompactRange({}, nullptr, nullptr);
    return status;
  };
  rocksdb::Status status;
  int turns = 0;
  for (; status.ok() && turns < 1000; ++turns) status = turn();
  EXPECT_THAT(status.ToString(), HasSubstr("max_manifest_file_size"));
  EXPECT_GT(turns, 2);
  database.Close();
  const rocksdb::Status opened = database.Open();
  ASSERT_OK(opened);
  EXPECT_EQ(database.Get("kept"), "1");
  EXPECT_OK(turn()) << "the MANIFEST that was full is gone";
}

// A log that was cut in a record makes RocksDB write an empty batch into its next log before it
// deletes what it has recovered.
TEST_F(DatabaseSpaceTest, AFullDataAreaWithACutLogIsOpened) {
  TestDatabase database(Options(), cluster_.folder() + "/db");
  database.options.write_buffer_size = 64 << 20;
  database.options.max_bgerror_resume_count = 0;
  database.options.avoid_flush_during_recovery = false;
  ASSERT_OK(database.Open());
  const std::string value(64 << 10, 'v');
  int keys = 0;
  rocksdb::Status put;
  for (; put.ok() && keys < 10000; ++keys) put = database.Put(TestDatabase::KeyOf(keys), value);
  ASSERT_THAT(put.ToString(), HasSubstr("data area full"));
  database.Close();
  // What is no record, in the room that the last log has left.
  ASSERT_OK(database.MakeEnv());
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(database.env()->LockFile(database.directory() + "/LOCK", &lock));
  std::vector<std::string> names;
  ASSERT_OK(database.env()->GetChildren(database.directory(), &names));
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".log"); });
  ASSERT_FALSE(names.empty());
  std::unique_ptr<rocksdb::WritableFile> log;
  ASSERT_OK(database.env()->ReopenWritableFile(
      database.directory() + "/" + *std::max_element(names.begin(), names.end()), &log,
      rocksdb::EnvOptions()));
  ASSERT_OK(log->Append(std::string("crc4\x1\0\x1?", 8)));
  ASSERT_OK(log->Close());
  ASSERT_OK(database.env()->UnlockFile(lock));
  database.Close();

  ASSERT_OK(database.Open());
  EXPECT_EQ(database.Get(TestDatabase::KeyOf(keys - 2)), value);
  EXPECT_OK(database.Put("after", "1")) << "the logs that were full are gone";
}

// A compressed log begins with a record that says so, which an opening writes before it deletes the
// logs that it has recovered.
TEST_F(DatabaseSpaceTest, AFullDataAreaIsOpenedWithCompressedLogs) {
  TestDatabase database(Options(), cluster_.folder() + "/db");
  database.options.wal_compression = rocksdb::kZSTD;
  database.options.write_buffer_size = 64 << 20;
  database.options.max_bgerror_resume_count = 0;
  database.options.avoid_flush_during_recovery = false;
  ASSERT_OK(database.Open());
  std::mt19937_64 random(1);
  std::string value(64 << 10, 'v');
  int keys = 0;
  rocksdb::Status put;
  for (; put.ok() && keys < 10000; ++keys) {
    std::generate(value.begin(), value.end(), [&] { return static_cast<char>(random()); });
    put = database.Put(TestDatabase::KeyOf(keys), value);
  }
  ASSERT_THAT(put.ToString(), HasSubstr("data area full"));
  for (int opening = 0; opening < 3; ++opening) {
    database.Close();
    ASSERT_OK(database.Open());
    EXPECT_OK(database.Put("after", "1")) << "the logs that were full are gone";
  }
}

// A resize gives more room than any reserve: the same database goes on in a larger group.
TEST_F(DatabaseSpaceTest, AFullGroupIsResizedBetweenTwoOpenings) {
  Transactions database(Options(), cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  auto transaction = database.Prepared("t");
  const int keys = database.Fill();
  ASSERT_GT(keys, 0);
  transaction.reset();
  database.Close();
  ASSERT_EQ(cluster_.Resize(56 << 20, 256), "");
  const rocksdb::Status opened = database.Open();
  ASSERT_OK(opened);
  std::string value;
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), TestDatabase::KeyOf(keys - 1), &value));
  const int more = database.Fill(keys);
  EXPECT_GT(more, keys + 200) << database.full();
  database.Close();
  ASSERT_OK(database.Open());
  EXPECT_OK(database->Get(rocksdb::ReadOptions(), TestDatabase::KeyOf(more - 1), &value));
}

// Files of a database take the table's slots until nothing can be flushed; it still closes and
// opens, again and again.
TEST_F(DatabaseSpaceTest, AFullTableIsOpened) {
  TestDatabase database(Options(), cluster_.folder() + "/db");
  database.options.disable_auto_compactions = true;
  database.options.avoid_flush_during_recovery = false;
  ASSERT_OK(database.Open());
  int keys = 0;
  rocksdb::Status status;
  for (; status.ok() && keys < 1000; ++keys) {
    ASSERT_OK(database.Put(TestDatabase::KeyOf(keys), TestDatabase::ValueOf(keys)));
    status = database.db()->Flush(rocksdb::FlushOptions());
  }
  EXPECT_THAT(status.ToString(), HasSubstr("table_capacity"));
  for (int opening = 0; opening < 3; ++opening) {
    database.Close();
    const rocksdb::Status opened = database.Open();
    ASSERT_OK(opened) << opening << ": " << opened.ToString();
    EXPECT_EQ(database.FirstMissing(keys), "");
  }
}

}  // namespace
}  // namespace hyperloop::test
