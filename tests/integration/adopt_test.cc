// A database that was in no group is taken into one by hyperloopctl, and no step of that can lose
// it.
#include <set>

#include "integration/whole_database_fixture.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class AdoptTest : public WholeDatabaseTest {
 protected:
  // Tables, and a log with the last keys.
  void MakePlain() {
    const auto db = MakePlainDatabase();
    ASSERT_NE(db, nullptr);
    for (int key = 0; key < kKeys; ++key) {
      ASSERT_OK(db->Put({}, TestDatabase::KeyOf(key), TestDatabase::ValueOf(key)));
      if (key == kKeys / 2) {
        ASSERT_OK(db->Flush({}));
      }
    }
  }
  std::unique_ptr<rocksdb::DB> MakePlainDatabase() const {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    EXPECT_OK(rocksdb::DB::Open(options, Directory(), &db));
    return std::unique_ptr<rocksdb::DB>(db);
  }
  std::string Command(const std::string& directory) const {
    return "adopt --db " + directory + " --uri '" + FormatStoreUri(cluster_.Options()) + "'";
  }
};

// On fresh replicas, which nobody has formatted. Neither directory nor replicas change.
TEST_F(AdoptTest, WhatIsNotWholeIsRefusedByAFreshGroup) {
  ASSERT_TRUE(shared_.Untaken().started());
  MakePlain();
  std::vector<fs::path> of_database = {Directory() + "/CURRENT"};
  for (const auto& entry : fs::directory_iterator(Directory()))
    if (entry.path().extension() == ".sst") of_database.push_back(entry.path());
  ASSERT_EQ(of_database.size(), 2u);
  for (const fs::path& path : of_database) {
    SCOPED_TRACE(path);
    const fs::path aside = cluster_.folder() + "/aside";
    fs::rename(path, aside);
    const auto before = FilesOf(Directory());
    StoreOptions options = cluster_.Options();
    options.adopt = true;
    TestDatabase database(options, Directory());
    EXPECT_THAT(database.Open().ToString(), AnyOf(HasSubstr("no CURRENT"), HasSubstr("lacks")));
    EXPECT_EQ(FilesOf(Directory()), before);
    fs::rename(aside, path);
  }
  {
    rocksdb::Options options;
    options.avoid_flush_during_recovery = true;
    rocksdb::DB* opened = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options, Directory(), &opened));
    const std::unique_ptr<rocksdb::DB> db(opened);
    ASSERT_OK(db->Put({}, "more than the region", std::string(40 << 20, 'm')));
  }
  const auto before = FilesOf(Directory());
  const Outcome large = Ctl(Command(Directory()));
  EXPECT_EQ(large.exit_status, 1);
  EXPECT_THAT(large.text, HasSubstr("hyperloopctl resize"));
  EXPECT_TRUE(FilesOf(Directory()) == before);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    const auto status = cluster_.ReplicaStatus(i);
    ASSERT_OK(status);
    EXPECT_EQ(status->sealed_epoch, 0u);
  }
}

TEST_F(AdoptTest, EveryReplicaHoldsTheDatabaseFromThenOn) {
  MakePlain();
  const Outcome adopted = Ctl(Command(Directory()));
  ASSERT_EQ(adopted.exit_status, 0) << adopted.text;
  EXPECT_THAT(adopted.text, HasSubstr("the group holds the database"));
  EXPECT_THAT(adopted.text, HasSubstr("holds its group's database"));
  ExpectEveryReplicaHoldsAll(kKeys);
  {
    TestDatabase database(cluster_.Options(), Directory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(kKeys), "");
    ASSERT_OK(database.Fill(kKeys + 10));
  }
  const Outcome again = Ctl(Command(Directory()));
  EXPECT_EQ(again.exit_status, 0) << again.text;
  fs::remove_all(Directory());
  fs::remove(cluster_.folder() + "/primary.pool");
  ExpectEveryReplicaHoldsAll(kKeys + 10);
}

// The way on when all but one replica of a group are lost.
TEST_F(AdoptTest, AnExportBecomesTheDatabaseOfAnEmptyGroup) {
  MakePlain();
  ASSERT_EQ(Ctl(Command(Directory())).exit_status, 0);
  const std::string rescued = cluster_.folder() + "/rescued";
  ASSERT_EQ(Export(1, rescued).exit_status, 0);
  ASSERT_EQ(cluster_.Reset(), "");
  const Outcome adopted = Ctl(Command(rescued));
  ASSERT_EQ(adopted.exit_status, 0) << adopted.text;
  ExpectEveryReplicaHoldsAll(kKeys);
  TestDatabase former(cluster_.Options(), Directory());
  EXPECT_THAT(former.Open().ToString(), HasSubstr("rebind=true"));
}

TEST_F(AdoptTest, AnOpenDatabaseAndNoDatabaseAreRefused) {
  const Outcome absent = Ctl(Command(Directory()));
  EXPECT_EQ(absent.exit_status, 2);
  EXPECT_THAT(absent.text, HasSubstr("holds no database"));
  const auto open = MakePlainDatabase();
  const auto before = FilesOf(Directory());
  const Outcome beside = Ctl(Command(Directory()));
  EXPECT_EQ(beside.exit_status, 1);
  EXPECT_THAT(beside.text, HasSubstr("is open in another process"));
  EXPECT_EQ(FilesOf(Directory()), before);
}

TEST_F(AdoptTest, KilledWhileAReplicaLacksFilesItGoesOn) {
  {
    // Each replica has a directory for the group's files from here on.
    TestDatabase other(cluster_.Options(), cluster_.folder() + "/other");
    ASSERT_OK(other.Open());
  }
  ASSERT_EQ(cluster_.Reset(), "");
  MakePlain();
  const auto group = *fs::directory_iterator(FilesOfReplica(1));
  const fs::path aside = cluster_.folder() + "/aside";
  cluster_.KillReplica(1);
  fs::rename(group.path(), aside);
  std::ofstream(group.path()) << "not a directory";
  ASSERT_OK(cluster_.Restart());
  {
    ChildProcess adopt =
        ChildProcess::Spawn({ProgramPath("hyperloopctl"), "adopt", "--db", Directory(), "--uri",
                             FormatStoreUri(cluster_.Options())});
    ASSERT_TRUE(Eventually([&] { return !TablesOfReplica(0).empty(); }));
    adopt.Kill();
  }
  const auto half = FilesOf(Directory());
  {
    TestDatabase database(cluster_.Options(), Directory());
    EXPECT_THAT(database.Open().ToString(), HasSubstr("hyperloopctl adopt"));
  }
  EXPECT_EQ(FilesOf(Directory()), half);
  const Outcome exported = Export(0, cluster_.folder() + "/half");
  EXPECT_EQ(exported.exit_status, 3);
  EXPECT_THAT(exported.text, HasSubstr("no whole database"));
  fs::remove(group.path());
  fs::rename(aside, group.path());
  const Outcome adopted = Ctl(Command(Directory()));
  ASSERT_EQ(adopted.exit_status, 0) << adopted.text;
  fs::remove_all(Directory());
  fs::remove(cluster_.folder() + "/primary.pool");
  ExpectEveryReplicaHoldsAll(kKeys);
}

}  // namespace
}  // namespace hyperloop::test
