// A replica holds the whole database: what its region and its directory of files have is all that
// stock RocksDB needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/sst_file_writer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/process_id.h"
#include "integration/whole_database_fixture.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

TEST_F(WholeDatabaseTest, AReplicaAloneIsTheDatabaseAfterFlushesAndCompactions) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    database.options.enable_blob_files = true;
    database.options.min_blob_size = 200;
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys / 2));
    ASSERT_OK(database.db()->Flush({}));
    ASSERT_OK(database.Put("big", std::string(1000, 'b')));
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
    ASSERT_OK(database.Put("in the log", "only"));
  }
  // The primary's machine is gone.
  fs::remove_all(Directory());
  fs::remove(cluster_.folder() + "/primary.pool");
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseTest, ReplicasKeepNoFileThatTheDatabaseDropped) {
  TestDatabase database(cluster_.Options(), Directory());
  ASSERT_OK(database.Open());
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
  }
  ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
  std::set<std::string> local;
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst") local.insert(entry.path().filename());
  ASSERT_EQ(local.size(), 1u);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const auto held = [&] {
      std::set<std::string> names;
      for (const auto& entry : fs::recursive_directory_iterator(FilesOfReplica(i))) {
        const std::string name = entry.path().filename();
        if (const size_t end = name.find(".sst@"); end != std::string::npos)
          names.insert(name.substr(0, end + 4));
      }
      return names;
    };
    EXPECT_TRUE(Eventually([&] { return held() == local; })) << i;
  }
}

// The nice values of the process's threads that move whole files.
std::multiset<int> NiceValuesOfBulkThreads(pid_t pid) {
  constexpr int kBefore = 16;  // fields between the name and the nice value, proc(5)
  std::multiset<int> values;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const std::string stat = cluster::ReadProcessFile(task.path() / "stat");
    if (stat.find("(hl-bulk") == std::string::npos) continue;
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string field;
    for (int i = 0; i < kBefore; ++i) fields >> field;
    int nice = 0;
    fields >> nice;
    values.insert(nice);
  }
  return values;
}

TEST_F(WholeDatabaseTest, ThreadsThatMoveFilesYieldToThoseThatCommit) {
  TestDatabase database(cluster_.Options(), Directory());
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Put("key", "value"));
  ASSERT_OK(database.db()->Flush({}));
  EXPECT_EQ(NiceValuesOfBulkThreads(getpid()), (std::multiset<int>{10, 10}));
  EXPECT_EQ(NiceValuesOfBulkThreads(cluster_.replica_pid(0)), std::multiset<int>{10});
}

TEST_F(WholeDatabaseTest, AnIngestedTableReachesTheReplicas) {
  const std::string table = cluster_.folder() + "/ingest.sst";
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Put(TestDatabase::KeyOf(0), "older"));
    ASSERT_OK(database.db()->Flush({}));
    rocksdb::SstFileWriter writer{rocksdb::EnvOptions(), rocksdb::Options()};
    ASSERT_OK(writer.Open(table));
    for (int key = 0; key < 10; ++key)
      ASSERT_OK(writer.Put(TestDatabase::KeyOf(key), TestDatabase::ValueOf(key)));
    ASSERT_OK(writer.Finish());
    rocksdb::IngestExternalFileOptions ingest;
    ingest.write_global_seqno = true;  // changes the file in place
    ASSERT_OK(database.db()->IngestExternalFile({table}, ingest));
  }
  ExpectEveryReplicaHoldsAll(10);
}

TEST_F(WholeDatabaseTest, AReplicaThatLostItsFilesGetsThemAgain) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
  }
  cluster_.KillReplica(1);
  fs::remove_all(FilesOfReplica(1));
  ASSERT_OK(cluster_.Restart());
  {
    const Outcome exported = Export(1, cluster_.folder() + "/lacking");
    EXPECT_EQ(exported.exit_status, 3);
    EXPECT_THAT(exported.text, HasSubstr("missing: "));
  }
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
  }
  ExpectEveryReplicaHoldsAll(kKeys);
}

// The first table by name is the damaged one, and the others come after it.
TEST_F(WholeDatabaseTest, ADamagedTableOfThePrimaryIsMendedAndHoldsUpNoOther) {
  TestDatabase database(cluster_.Options(), Directory());
  database.options.disable_auto_compactions = true;
  ASSERT_OK(database.Open());
  for (const int keys : {kKeys / 2, kKeys}) {
    ASSERT_OK(database.Fill(keys));
    ASSERT_OK(database.db()->Flush({}));
  }
  database.Close();
  cluster_.KillReplica(1);
  fs::remove_all(FilesOfReplica(1));
  ASSERT_OK(cluster_.Restart());
  fs::path first;
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst" && (first.empty() || entry.path() < first))
      first = entry.path();
  Damage(first);
  ASSERT_OK(database.Open());
  const fs::path aside = fs::path(Directory()) / "hyperloop-set-aside/damaged" / first.filename();
  EXPECT_TRUE(Eventually([&] { return fs::exists(aside); }));
  EXPECT_TRUE(Eventually([&] { return TablesOfReplica(1).size() == 2; }));
  database.Close();
  ASSERT_OK(database.Open());
  EXPECT_EQ(database.FirstMissing(kKeys), "");
  database.Close();
  ExpectEveryReplicaHoldsAll(kKeys);
}

// An opening would wait in vain for a replica that holds the table. So all lose it later.
TEST_F(WholeDatabaseTest, StatusNamesADamagedTableOfThePrimaryUntilItIsSound) {
  TestDatabase database(cluster_.Options(), Directory());
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys));
  ASSERT_OK(database.db()->Flush({}));
  fs::path table;
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst") table = entry.path();
  const std::string kept = cluster_.folder() + "/kept";
  fs::copy(table, kept);
  Damage(table);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    cluster_.KillReplica(i);
    fs::remove_all(FilesOfReplica(i));
  }
  ASSERT_OK(cluster_.Restart());
  const auto status = [&] { return Ctl("status --dir " + cluster_.folder() + "/cluster").text; };
  const std::string named =
      "wait to be mended: 1; the first is " + table.filename().string() + " (";
  EXPECT_TRUE(Eventually([&] { return status().find(named) != std::string::npos; }));
  fs::copy(kept, table, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(Eventually([&] { return status().find("mended") == std::string::npos; }));
}

TEST_F(WholeDatabaseTest, ALostOrCutTableComesFromAReplica) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    for (int round = 0; round < 2; ++round) {
      ASSERT_OK(database.Fill(kKeys));
      ASSERT_OK(database.db()->Flush({}));
    }
  }
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  ASSERT_EQ(tables.size(), 2u);
  fs::remove(tables[0]);
  fs::resize_file(tables[1], 100);
  // Of the two replicas that hold them one has been damaged since.
  for (const fs::path& table : TablesOfReplica(0)) Damage(table);
  TestDatabase database(cluster_.Options(), Directory());
  ASSERT_OK(database.Open());
  EXPECT_EQ(database.FirstMissing(kKeys), "");
  EXPECT_OK(database.db()->VerifyChecksum());
}

TEST_F(WholeDatabaseTest, ALostDirectoryIsFilledFromTheGroup) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys / 2));
    ASSERT_OK(database.db()->Flush({}));
    ASSERT_OK(database.Fill(kKeys));
  }
  fs::remove_all(Directory());
  StoreOptions options = cluster_.Options();
  options.restore = options.rebind = true;
  {
    TestDatabase database(options, Directory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(kKeys), "");
    EXPECT_OK(database.db()->VerifyChecksum());
  }
  ExpectEveryReplicaHoldsAll(kKeys);
}

// A table that was listed when the primary's machine was lost, and had reached no replica.
TEST_F(WholeDatabaseTest, AnUnfinishedTableThatNobodyHasKeepsNoDatabaseFromOpening) {
  StoreOptions options = cluster_.Options();
  {
    StoreOptions impatient = options;
    impatient.ack_timeout = std::chrono::seconds(1);  // closing waits for the dead, too
    TestDatabase database(impatient, Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
    cluster_.SignalAllReplicas(SIGSTOP);
    std::unique_ptr<rocksdb::WritableFile> table;
    ASSERT_OK(database.env()->NewWritableFile(Directory() + "/000999.sst", &table, {}));
    ASSERT_OK(table->Append("bytes"));
    ASSERT_OK(table->Close());
    // Nobody reads what they were sent.
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) cluster_.KillReplica(i);
  }
  ASSERT_OK(cluster_.Restart());
  fs::remove_all(Directory());
  options.restore = options.rebind = true;
  TestDatabase database(options, Directory());
  ASSERT_OK(database.Open());
  EXPECT_EQ(database.FirstMissing(kKeys), "");
  ASSERT_OK(database.Put("after", "1"));
  ASSERT_OK(database.db()->Flush({}));
}

TEST_F(WholeDatabaseTest, AReplicaWithoutRoomIsNamedAndWritesGoOnWhenItHasRoomAgain) {
  StoreOptions options = cluster_.Options();
  options.bulk_timeout = std::chrono::seconds(3);
  TestDatabase database(options, Directory());
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys / 2));
  // Nothing can be made in its directory any more.
  const auto group = *fs::directory_iterator(FilesOfReplica(1));
  const fs::path aside = cluster_.folder() + "/aside";
  fs::rename(group.path(), aside);
  cluster_.KillReplica(1);
  std::ofstream(group.path()) << "not a directory";
  ASSERT_OK(cluster_.Restart());
  std::string said;
  EXPECT_TRUE(Eventually([&] {
    said = database.db()->Flush({}).ToString();
    return said.find("Not a directory") != std::string::npos;
  })) << said;
  fs::remove(group.path());
  fs::rename(aside, group.path());
  EXPECT_TRUE(Eventually([&] { return database.db()->Flush({}).ok(); })) << "RocksDB resumes";
  ASSERT_OK(database.Fill(kKeys));
  database.Close();
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseTest, ATableThatNoReplicaHoldsIsRefusedBeforeAnythingChanges) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
  }
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst") fs::remove(entry.path());
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) RemoveFilesOfReplica(i);
  const auto before = FilesOf(Directory());
  TestDatabase database(cluster_.Options(), Directory());
  EXPECT_THAT(database.Open().ToString(), HasSubstr("No replica within reach holds"));
  EXPECT_EQ(FilesOf(Directory()), before);
}

// The barrier: a table is named in the MANIFEST only when every replica has it. Commits, whose
// path needs no replica's processor, go on meanwhile.
TEST_F(WholeDatabaseTest, AFlushWaitsForAStoppedReplicaAndCommitsDoNot) {
  TestDatabase database(cluster_.Options(), Directory());
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys / 2));
  cluster_.SignalReplica(1, SIGSTOP);
  rocksdb::FlushOptions no_wait;
  no_wait.wait = false;
  ASSERT_OK(database.db()->Flush(no_wait));
  ASSERT_OK(database.Fill(kKeys));
  std::string flushed;
  ASSERT_TRUE(database.db()->GetProperty("rocksdb.num-files-at-level0", &flushed));
  EXPECT_EQ(flushed, "0") << "the table is not installed before replica 1 has it";
  cluster_.SignalReplica(1, SIGCONT);
  ASSERT_OK(database.db()->Flush({}));
  database.Close();
  ExpectEveryReplicaHoldsAll(kKeys);
}

TEST_F(WholeDatabaseTest, ADamagedFileOfAReplicaIsNotExported) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
  }
  for (const fs::path& table : TablesOfReplica(0)) Damage(table);
  const Outcome exported = Export(0, cluster_.folder() + "/damaged");
  EXPECT_EQ(exported.exit_status, 1);
  EXPECT_THAT(exported.text, HasSubstr("fails its checksum"));
  EXPECT_FALSE(fs::exists(cluster_.folder() + "/damaged"));
}

TEST_F(WholeDatabaseTest, VerifyNamesADamagedFileOfAReplica) {
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    ASSERT_OK(database.Fill(kKeys));
    ASSERT_OK(database.db()->Flush({}));
  }
  const std::string verify = "verify --dir " + cluster_.folder() + "/cluster";
  const Outcome sound = Ctl(verify + " --files");
  EXPECT_EQ(sound.exit_status, 0) << sound.text;
  EXPECT_THAT(sound.text, HasSubstr("files of each replica are sound"));
  const auto tables = TablesOfReplica(1);
  ASSERT_EQ(tables.size(), 1u);
  Damage(tables[0]);
  EXPECT_EQ(Ctl(verify).exit_status, 0) << "it reads no tables unless it is told to";
  const std::string name = tables[0].filename().string();
  const Outcome damaged = Ctl(verify + " --files");
  EXPECT_EQ(damaged.exit_status, 1);
  EXPECT_THAT(damaged.text, HasSubstr("replica1: the file \"" + name.substr(0, name.find('@')) +
                                      "\" fails its checksum"));
  fs::remove(tables[0]);
  EXPECT_THAT(Ctl(verify + " --files").text, HasSubstr("is not there"));
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    EXPECT_TRUE(Eventually([&] { return TablesOfReplica(1).size() == 1; })) << "it is sent again";
  }
  EXPECT_EQ(Ctl(verify + " --files").exit_status, 0);
}

class ShrunkenDatabaseTest : public SharedClusterTest<3, 32 << 20> {};

TEST_F(ShrunkenDatabaseTest, AFlushGoesOnWithoutAReplicaThatIsSilentForTooLong) {
  StoreOptions store = cluster_.Options();
  store.on_replica_failure = OnReplicaFailure::kContinue;
  store.ack_timeout = std::chrono::minutes(1);  // no replica is left out because it is slow
  store.heartbeat_timeout = std::chrono::seconds(5);
  TestDatabase database(store, cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys));
  cluster_.SignalReplica(1, SIGSTOP);
  EXPECT_OK(database.db()->Flush({}));
  const auto status = cluster_.ReplicaStatus(0);
  ASSERT_OK(status);
  EXPECT_THAT(status->absent, testing::ElementsAre(cluster_.endpoint(1)));
  cluster_.SignalReplica(1, SIGCONT);
  EXPECT_TRUE(Eventually([&] {
    const auto again = cluster_.ReplicaStatus(1);
    return again.ok() && again->replicas.size() == 3;
  }));
  ASSERT_OK(database.Put("later", "still there"));
  database.Close();
}

// A replica that dies under a database, and one that comes back with an empty disk.
TEST_F(ShrunkenDatabaseTest, GoesOnOpensAndIsWholeAgain) {
  StoreOptions store = cluster_.Options();
  store.on_replica_failure = OnReplicaFailure::kContinue;
  store.ack_timeout = std::chrono::seconds(24);
  TestDatabase database(store, cluster_.folder() + "/db");
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys / 2));
  ASSERT_OK(database.db()->Flush({}));
  cluster_.KillReplica(1);
  ASSERT_OK(database.Fill(kKeys));
  ASSERT_OK(database.db()->Flush({}));
  ASSERT_OK(database.db()->CompactRange({}, nullptr, nullptr));
  database.Close();
  ASSERT_OK(database.Open()) << "it opens without the dead replica";
  ASSERT_OK(database.Put("later", "still there"));
  ASSERT_OK(database.db()->Flush({}));
  fs::remove(cluster_.pool(1));
  fs::remove_all(cluster_.pool(1) + ".files");
  ASSERT_OK(cluster_.Restart());
  std::set<std::string> tables;
  for (const auto& entry : fs::directory_iterator(database.directory()))
    if (entry.path().extension() == ".sst") tables.insert(entry.path().filename());
  const auto holds = [&](uint32_t i) {
    std::set<std::string> names;
    if (!fs::exists(cluster_.pool(i) + ".files")) return false;
    for (const auto& entry : fs::recursive_directory_iterator(cluster_.pool(i) + ".files")) {
      const std::string name = entry.path().filename();
      if (const size_t end = name.find(".sst@"); end != std::string::npos)
        names.insert(name.substr(0, end + 4));
    }
    return std::includes(names.begin(), names.end(), tables.begin(), tables.end());
  };
  EXPECT_TRUE(Eventually([&] { return holds(1); }));
  database.Close();
  const std::string to = cluster_.folder() + "/export";
  const std::string command = ProgramPath("hyperloopctl") + " export --dir " + cluster_.folder() +
                              "/cluster --replica 1 --to " + to + " >" + to + ".log 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  rocksdb::DB* plain = nullptr;
  ASSERT_OK(rocksdb::DB::Open({}, to, &plain));
  const std::unique_ptr<rocksdb::DB> owned(plain);
  std::string value;
  for (int key = 0; key < kKeys; ++key) {
    ASSERT_OK(owned->Get({}, TestDatabase::KeyOf(key), &value)) << key;
    ASSERT_EQ(value, TestDatabase::ValueOf(key));
  }
  ASSERT_OK(owned->Get({}, "later", &value));
}

}  // namespace
}  // namespace hyperloop::test
