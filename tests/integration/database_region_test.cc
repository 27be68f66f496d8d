// A real RocksDB keeps more logs than the group's data area holds: closed logs leave the region, so
// writes go on as they do without the plugin, and each copy of the database has them.
#include <rocksdb/transaction_log.h>

#include "integration/whole_database_fixture.h"

namespace hyperloop::test {
namespace {

class DatabaseRegionTest : public WholeDatabaseTest {
 protected:
  static constexpr int kPuts = 1100;  // 70 MB, almost three times the data area
  static constexpr int kPutsAFlush = 32;

  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.journal_size = 4 << 20;
    options.table_capacity = 1024;
    options.space_timeout = std::chrono::seconds(60);  // however slow the machine is
    return options;
  }
  static std::string BigValue(int i) {
    std::string value = TestDatabase::ValueOf(i);
    value.resize(64 << 10, static_cast<char>('a' + i % 26));
    return value;
  }
  static void PutBig(rocksdb::DB& db, int from, int to) {
    for (int i = from; i < to; ++i) {
      ASSERT_OK(db.Put({}, TestDatabase::KeyOf(i), BigValue(i))) << i;
      if (i % kPutsAFlush == kPutsAFlush - 1) {
        ASSERT_OK(db.Flush({})) << i;
      }
    }
  }
  static void ExpectBig(rocksdb::DB& db, int count) {
    std::string value;
    for (int i = 0; i < count; ++i) {
      ASSERT_OK(db.Get({}, TestDatabase::KeyOf(i), &value)) << i;
      ASSERT_TRUE(value == BigValue(i)) << i;
    }
  }
  void WriteWithoutDeletions(TestDatabase* database) {
    database->options.disable_auto_compactions = true;
    ASSERT_OK(database->Open());
    ASSERT_OK(database->db()->DisableFileDeletions());
    PutBig(*database->db(), 0, kPuts);
    if (HasFatalFailure()) return;
    EXPECT_GT(Count(Directory(), ".log"), 30) << "none was deleted";
    database->Close();  // the logs stay
    ASSERT_OK(database->Open());
    ExpectBig(*database->db(), kPuts);
    PutBig(*database->db(), kPuts, kPuts + kPutsAFlush);
    ExpectBig(*database->db(), kPuts + kPutsAFlush);
  }
  // The files of an exported or opened directory with this suffix.
  static int Count(const std::string& directory, const std::string& suffix) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(directory))
      count += entry.path().string().ends_with(suffix) ? 1 : 0;
    return count;
  }
};

TEST_F(DatabaseRegionTest, WritesGoOnWhileDeletionsAreHeldOff) {
  TestDatabase database(Options(), Directory());
  WriteWithoutDeletions(&database);
}

// RocksDB never syncs the closed logs of a database with one family, unless a write asks for it.
TEST_F(DatabaseRegionTest, WritesGoOnWithAckSyncWhileDeletionsAreHeldOff) {
  StoreOptions options = Options();
  options.ack = AckMode::kSync;
  TestDatabase database(options, Directory());
  WriteWithoutDeletions(&database);
}

TEST_F(DatabaseRegionTest, WritesGoOnWithManualFlushesWhileDeletionsAreHeldOff) {
  TestDatabase database(Options(), Directory());
  database.options.manual_wal_flush = true;
  WriteWithoutDeletions(&database);
}

// The family's entry is in the oldest log alone, which has left the region: every replica, and a
// directory that is made anew, must have it.
TEST_F(DatabaseRegionTest, AnIdleFamilyBesideABusyOneStopsNothing) {
  TestDatabase database(Options(), Directory());
  ASSERT_OK(database.Open());
  rocksdb::ColumnFamilyHandle* idle = nullptr;
  ASSERT_OK(database.db()->CreateColumnFamily(database.options, "idle", &idle));
  ASSERT_OK(database.db()->Put({}, idle, "idle", "kept"));
  PutBig(*database.db(), 0, kPuts);
  ASSERT_OK(database.db()->DestroyColumnFamilyHandle(idle));
  if (HasFatalFailure()) return;
  EXPECT_GT(Count(Directory(), ".log"), 30) << "none was deleted";
  database.Close();

  const auto expect_all = [&](rocksdb::Options options, const std::string& directory) {
    rocksdb::DB* db = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    const rocksdb::Status opened = rocksdb::DB::Open(
        options, directory, {{"default", options}, {"idle", options}}, &handles, &db);
    ASSERT_OK(opened);
    std::string value;
    EXPECT_OK(db->Get({}, handles[1], "idle", &value));
    EXPECT_EQ(value, "kept");
    ExpectBig(*db, kPuts);
    for (rocksdb::ColumnFamilyHandle* handle : handles)
      EXPECT_OK(db->DestroyColumnFamilyHandle(handle));
    delete db;
  };
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const std::string to = cluster_.folder() + "/exported" + std::to_string(i);
    const Outcome exported = Export(i, to);
    ASSERT_EQ(exported.exit_status, 0) << exported.text;
    rocksdb::Options plain;
    plain.avoid_flush_during_recovery = true;
    expect_all(plain, to);
  }
  EXPECT_EQ(Ctl("verify --dir " + cluster_.folder() + "/cluster").exit_status, 0);
  // The primary's directory is lost.
  fs::remove_all(Directory());
  StoreOptions restoring = Options();
  restoring.restore = restoring.rebind = true;
  TestDatabase restored(restoring, Directory());
  ASSERT_OK(restored.MakeEnv());
  restored.options.env = restored.env();
  expect_all(restored.options, Directory());
}

TEST_F(DatabaseRegionTest, ArchivedLogsDoNotFillTheDataArea) {
  TestDatabase database(Options(), Directory());
  database.options.disable_auto_compactions = true;
  database.options.WAL_ttl_seconds = 3600;
  ASSERT_OK(database.Open());
  PutBig(*database.db(), 0, kPuts);
  if (HasFatalFailure()) return;
  const auto updates = [&] {
    std::unique_ptr<rocksdb::TransactionLogIterator> since;
    EXPECT_OK(database.db()->GetUpdatesSince(1, &since));
    int count = 0;
    for (; since != nullptr && since->Valid(); since->Next()) ++count;
    return count;
  };
  EXPECT_EQ(updates(), kPuts);
  database.Close();
  ASSERT_OK(database.Open());
  EXPECT_EQ(updates(), kPuts);
  ExpectBig(*database.db(), kPuts);
}

}  // namespace
}  // namespace hyperloop::test
