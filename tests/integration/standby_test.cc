// hyperloopctl standby keeps a directory ready to become the group's: what the primary writes is
// beside it before the primary dies, and the opening there links it without reading it.
#include <fcntl.h>
#include <sys/stat.h>

#include "integration/elsewhere_fixture.h"
#include "support/eventually.h"

namespace hyperloop::test {
namespace {

using testing::HasSubstr;

class StandbyTest : public ElsewhereTest {
 protected:
  ChildProcess Begin(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> argv{
        ProgramPath("hyperloopctl"), "standby", "--db", NewDirectory(), "--uri",
        FormatStoreUri(Elsewhere())};
    argv.insert(argv.end(), more.begin(), more.end());
    return ChildProcess::Spawn(argv);
  }
  StoreOptions Restoring() const {
    StoreOptions options = Elsewhere();
    options.restore = options.rebind = true;
    return options;
  }
  // The tables that are there beside the directory.
  std::vector<fs::path> TablesBrought() const {
    std::vector<fs::path> tables;
    for (const auto& entry : fs::recursive_directory_iterator(Brought()))
      if (IsWholeTable(entry.path())) tables.push_back(entry.path());
    return tables;
  }
  // Another byte, and neither size nor time tells of it. It shows whether the file is read.
  static void DamageUnseen(const fs::path& path) {
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    Damage(path);
    const struct timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  static ino_t InodeOf(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found.st_ino;
  }
};

TEST_F(StandbyTest, WhatThePrimaryWritesIsHereBeforeItEnds) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  const uint64_t epoch = Epoch();
  ChildProcess standby = Begin();
  EXPECT_EQ(standby.ReadLine(), "ready " + NewDirectory());
  EXPECT_EQ(CountBrought(), 1u);
  ASSERT_OK(former_->Fill(kKeys + 10));
  ASSERT_OK(former_->db()->Flush({}));
  ASSERT_TRUE(Eventually([&] { return CountBrought() == 2; }));
  EXPECT_EQ(Epoch(), epoch) << "nothing was taken";
  EXPECT_FALSE(fs::exists(NewDirectory() + "/HYPERLOOP"));

  const Outcome beside =
      Ctl("standby --db " + NewDirectory() + " --uri '" + FormatStoreUri(Elsewhere()) + "'");
  EXPECT_EQ(beside.exit_status, 1);
  EXPECT_THAT(beside.text, HasSubstr("is open in another process"));

  standby.Kill();
  former_->Close();
  const ino_t brought = InodeOf(TablesBrought().at(0));
  TestDatabase there(Restoring(), NewDirectory());
  ASSERT_OK(there.Open());
  EXPECT_EQ(there.FirstMissing(kKeys + 10), "");
  EXPECT_FALSE(fs::exists(Brought()));
  bool linked = false;
  for (const std::string& table : TablesIn(NewDirectory()))
    linked = linked || InodeOf(NewDirectory() + "/" + table) == brought;
  EXPECT_TRUE(linked);
}

TEST_F(StandbyTest, WhatThePrimaryRemovesIsNotKept) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  ChildProcess standby = Begin();
  ASSERT_EQ(standby.ReadLine(), "ready " + NewDirectory());
  const fs::path first = TablesBrought().at(0);
  ASSERT_OK(former_->db()->Flush({}));
  rocksdb::CompactRangeOptions all;
  all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  ASSERT_OK(former_->db()->CompactRange(all, nullptr, nullptr));
  EXPECT_TRUE(Eventually([&] { return !fs::exists(first) && CountBrought() == 1; }));
}

TEST_F(StandbyTest, TablesOfTheReplicaHereAreLinked) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  ChildProcess standby = Begin({"--replica-files", FilesOfReplica(1)});
  ASSERT_EQ(standby.ReadLine(), "ready " + NewDirectory());
  EXPECT_EQ(InodeOf(TablesBrought().at(0)), InodeOf(TablesOfReplica(1).at(0)));
}

// The directory that was the primary's before has most of what it needs, and is read once, while
// another one serves.
TEST_F(StandbyTest, TheOpeningReadsNoTableThatTheStandbyHasRead) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  former_->Close();
  TestDatabase there(Restoring(), NewDirectory());
  ASSERT_OK(there.Open());

  const std::string table = Directory() + "/" + TablesIn(Directory()).at(0);
  const struct timespec times[2] = {{1000000, 0}, {1000000, 0}};  // long ago: it is read once
  ASSERT_EQ(::utimensat(AT_FDCWD, table.c_str(), times, 0), 0);
  ChildProcess standby = ChildProcess::Spawn(
      {ProgramPath("hyperloopctl"), "standby", "--db", Directory(), "--uri", cluster_.uri()});
  ASSERT_EQ(standby.ReadLine(), "ready " + Directory());
  standby.Kill();
  there.Close();

  ASSERT_NO_FATAL_FAILURE(DamageUnseen(table));
  const ino_t damaged = InodeOf(table);
  StoreOptions back = cluster_.Options();
  back.restore = back.rebind = true;
  {
    TestDatabase unread(back, Directory());
    ASSERT_OK(unread.Open());
    EXPECT_EQ(InodeOf(table), damaged);
  }
  // Without a standby each opening of another directory reads, and mends it.
  TestDatabase elsewhere(Restoring(), NewDirectory());
  ASSERT_OK(elsewhere.Open());
  elsewhere.Close();
  TestDatabase read(back, Directory());
  ASSERT_OK(read.Open());
  EXPECT_NE(InodeOf(table), damaged);
  EXPECT_EQ(read.FirstMissing(kKeys), "");
}

TEST_F(StandbyTest, WhatCannotBecomeTheGroupsIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Serve());
  StoreOptions forced = Elsewhere();
  forced.takeover = true;
  const Outcome takes =
      Ctl("standby --db " + NewDirectory() + " --uri '" + FormatStoreUri(forced) + "'");
  EXPECT_EQ(takes.exit_status, 2);
  EXPECT_THAT(takes.text, HasSubstr("a standby takes nothing"));
  {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options, NewDirectory(), &db));
    const std::unique_ptr<rocksdb::DB> owned(db);
    ASSERT_OK(db->Put({}, "its", "own"));
  }
  const auto files = FilesOf(NewDirectory());
  const Outcome other =
      Ctl("standby --db " + NewDirectory() + " --uri '" + FormatStoreUri(Elsewhere()) + "'");
  EXPECT_EQ(other.exit_status, 2);
  EXPECT_THAT(other.text, HasSubstr("holds a database that is of no group"));
  EXPECT_EQ(FilesOf(NewDirectory()), files);
}

}  // namespace
}  // namespace hyperloop::test
