// Whatever RocksDB does with its files, every replica holds exactly those of the database: no file
// less, none more, and so no more disk space than the primary uses for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "integration/whole_database_fixture.h"

namespace hyperloop::test {
namespace {

class WholeDatabaseFilesTest : public WholeDatabaseTest {
 protected:
  using Files = std::map<std::string, uint64_t>;  // sizes by name

  // The files of the directory that travel whole.
  Files Local() const {
    Files files;
    for (const auto& entry : fs::directory_iterator(Directory())) {
      const std::string name = entry.path().filename();
      std::error_code gone;
      const uint64_t size = fs::file_size(entry.path(), gone);
      if (gone) continue;
      if (name.ends_with(".sst") || name.ends_with(".blob") || name.starts_with("OPTIONS-") ||
          name == "IDENTITY")
        files[name] = size;
    }
    return files;
  }
  // All that a replica keeps for its group, whether it counts or not.
  Files Held(uint32_t replica) const {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(FilesOfReplica(replica))) {
      std::error_code gone;
      if (!entry.is_regular_file(gone) || gone) continue;
      std::string name = entry.path().filename();
      const uint64_t size = fs::file_size(entry.path(), gone);
      if (gone) continue;
      const size_t at = name.rfind('@');
      if (at != std::string::npos && name.size() == at + 17) name.resize(at);
      files[name] += size;  // two of one name differ from the one that the database has
    }
    return files;
  }
  void ExpectEqualFiles() const {
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      Files local, held;
      EXPECT_TRUE(Eventually([&] {
        local = Local();
        held = Held(i);
        return local == held;
      })) << "replica "
          << i << " holds " << testing::PrintToString(held) << ", the database has "
          << testing::PrintToString(local);
    }
  }
  // Fills and flushes so often.
  static void Flushes(TestDatabase& database, int count) {
    for (int round = 0; round < count; ++round) {
      ASSERT_OK(database.Fill(kKeys));
      ASSERT_OK(database.db()->Flush({}));
    }
  }
  // No compaction that could still drop files runs or is due. When the database closes, replicas
  // keep what it dropped a moment ago, until it is opened again.
  static bool IsIdle(TestDatabase& database) {
    uint64_t running = 1, pending = 1;
    return database.db()->GetIntProperty("rocksdb.num-running-compactions", &running) &&
           database.db()->GetIntProperty("rocksdb.compaction-pending", &pending) && running == 0 &&
           pending == 0;
  }
  size_t Count(const std::string& extension) const {
    size_t count = 0;
    for (const auto& [name, size] : Local()) count += name.ends_with(extension) ? 1 : 0;
    return count;
  }
};

TEST_F(WholeDatabaseFilesTest, FifoCompaction) {
  TestDatabase database(cluster_.Options(), Directory());
  database.options.compaction_style = rocksdb::kCompactionStyleFIFO;
  database.options.compaction_options_fifo.max_table_files_size = 600 << 10;
  database.options.compression = rocksdb::kNoCompression;
  ASSERT_OK(database.Open());
  Flushes(database, 6);
  ASSERT_TRUE(Eventually([&] { return Count(".sst") < 6; })) << "none was dropped";
  ExpectEqualFiles();
}

TEST_F(WholeDatabaseFilesTest, UniversalCompaction) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    database.options.compaction_style = rocksdb::kCompactionStyleUniversal;
    database.options.level0_file_num_compaction_trigger = 3;
    ASSERT_OK(database.Open());
    Flushes(database, 7);
    ASSERT_TRUE(Eventually([&] { return Count(".sst") < 7; })) << "none was compacted";
    ASSERT_TRUE(Eventually([&] { return IsIdle(database); }));
    ExpectEqualFiles();
  }
  ExpectEqualFiles();
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseFilesTest, GarbageCollectionOfBlobs) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    database.options.enable_blob_files = true;
    database.options.enable_blob_garbage_collection = true;
    database.options.blob_garbage_collection_age_cutoff = 1.0;
    database.options.disable_auto_compactions = true;
    ASSERT_OK(database.Open());
    Flushes(database, 4);
    ASSERT_EQ(Count(".blob"), 4u);
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
    ASSERT_TRUE(Eventually([&] { return Count(".blob") < 4; })) << "none was collected";
    ASSERT_TRUE(Eventually([&] { return IsIdle(database); }));
    ExpectEqualFiles();
  }
  ExpectEqualFiles();
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseFilesTest, ADroppedColumnFamily) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    Flushes(database, 1);
    rocksdb::ColumnFamilyHandle* family = nullptr;
    ASSERT_OK(database.db()->CreateColumnFamily({}, "second", &family));
    for (int key = 0; key < 100; ++key)
      ASSERT_OK(database.db()->Put({}, family, TestDatabase::KeyOf(key), std::string(1000, 'c')));
    ASSERT_OK(database.db()->Flush({}, family));
    ASSERT_EQ(Count(".sst"), 2u);
    ExpectEqualFiles();
    ASSERT_OK(database.db()->DropColumnFamily(family));
    ASSERT_OK(database.db()->DestroyColumnFamilyHandle(family));
    ASSERT_TRUE(Eventually([&] { return Count(".sst") == 1; }));
    ExpectEqualFiles();
  }
  ExpectEqualFiles();
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseFilesTest, ACheckpoint) {
  const std::string to = cluster_.folder() + "/checkpoint";
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    Flushes(database, 2);
    ASSERT_OK(database.Put("in the log", "only"));
    rocksdb::Checkpoint* made = nullptr;
    ASSERT_OK(rocksdb::Checkpoint::Create(database.db(), &made));
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    ASSERT_OK(checkpoint->CreateCheckpoint(to));
    ExpectEqualFiles();
    // The checkpoint shares bytes with the database's tables, and keeps them when those go.
    Flushes(database, 1);
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
    ExpectEqualFiles();
  }
  ExpectEqualFiles();
  const auto plain = OpenPlain(to);
  ASSERT_NE(plain, nullptr);
  std::string value;
  ASSERT_OK(plain->Get({}, "in the log", &value));
}

// The MANIFEST names them, and it is the group's. Each replica's files pass them.
TEST_F(WholeDatabaseFilesTest, RocksDbsOwnFileChecksums) {
  const auto factory = rocksdb::GetFileChecksumGenCrc32cFactory();
  {
    TestDatabase database(cluster_.Options(), Directory());
    database.options.file_checksum_gen_factory = factory;
    database.options.enable_blob_files = true;
    database.options.min_blob_size = 300;
    ASSERT_OK(database.Open());
    Flushes(database, 2);
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
    ASSERT_OK(database.db()->VerifyFileChecksums({}));
  }
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const std::string to = cluster_.folder() + "/checked" + std::to_string(i);
    ASSERT_EQ(Export(i, to).exit_status, 0);
    const auto verified = [&] {
      rocksdb::Options options;
      options.file_checksum_gen_factory = factory;
      rocksdb::DB* db = nullptr;
      rocksdb::Status status = rocksdb::DB::OpenForReadOnly(options, to, &db);
      const std::unique_ptr<rocksdb::DB> owned(db);
      return status.ok() ? db->VerifyFileChecksums({}) : status;
    };
    EXPECT_OK(verified());
    for (const auto& entry : fs::directory_iterator(to))
      if (entry.path().extension() == ".blob" || entry.path().extension() == ".sst")
        Damage(entry.path());
    EXPECT_TRUE(verified().IsCorruption()) << "nothing was verified";
  }
}

TEST_F(WholeDatabaseFilesTest, ARepair) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    Flushes(database, 2);
    ASSERT_OK(database.Fill(2 * kKeys));  // these are in the log only
  }
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.MakeEnv());
    database.options.env = database.env();
    ASSERT_OK(rocksdb::RepairDB(Directory(), database.options));
  }
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(2 * kKeys), "");
    ExpectEqualFiles();
  }
  ExpectEqualFiles();
  ExpectEveryReplicaHoldsAll(2 * kKeys);
}

}  // namespace
}  // namespace hyperloop::test
