// A database that was in no group is taken into an empty one by adopt=true, whole or not at all.
#include "adoption.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::DB;
using rocksdb::Options;
using rocksdb::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Content = std::map<std::string, std::string>;

class AdoptionTest : public DatabaseTest {
 protected:
  // The directory as a program without the plugin opens or makes it.
  void Plainly(const std::function<void(DB&)>& change, Options options = Options()) {
    options.create_if_missing = true;
    DatabaseTest::Plainly(directory_, change, options);
  }
  // Tables, and a log with the newest keys.
  void MakePlain() {
    Options options;
    options.avoid_flush_during_recovery = true;
    Plainly(
        [](DB& db) {
          ASSERT_OK(db.Put({}, "table", "1"));
          ASSERT_OK(db.Flush({}));
          ASSERT_OK(db.Put({}, "log", "1"));
          ASSERT_OK(db.FlushWAL(true));
        },
        options);
  }
  static Content ContentOf(DB& db) {
    Content content;
    const std::unique_ptr<rocksdb::Iterator> all(db.NewIterator({}));
    for (all->SeekToFirst(); all->Valid(); all->Next())
      content[all->key().ToString()] = all->value().ToString();
    EXPECT_OK(all->status());
    return content;
  }
  Content PlainContent() {
    Content content;
    Plainly([&](DB& db) { content = ContentOf(db); });
    return content;
  }
  void Use(bool adopt) {
    Close();
    env_.reset();
    StoreOptions options = MakeStoreOptions();
    options.adopt = adopt;
    fs_ = MakeFileSystem(options);
    env_ = rocksdb::NewCompositeEnv(fs_);
  }
  Status Adopt() {
    Use(true);
    return Open(MakeOptions());
  }
  Status OpenAsMember() {
    Use(false);
    return Open(MakeOptions());
  }
  // Without opening the database, as hyperloopctl adopt does it.
  Status AdoptOnly() {
    Use(true);
    rocksdb::FileLock* lock = nullptr;
    const Status locked = fs_->LockFile(directory_ + "/LOCK", {}, &lock, nullptr);
    if (!locked.ok()) return locked;
    return fs_->UnlockFile(lock, {}, nullptr);
  }
  // Neither directory nor group changes.
  void ExpectRefused(const Status& status, const Content& before,
                     const ::testing::Matcher<std::string>& reason) {
    EXPECT_THAT(status, Not(IsOk()));
    EXPECT_THAT(status.ToString(), reason);
    EXPECT_TRUE(LocalFilesNow() == before);
    EXPECT_THAT(group_->LogFiles(), IsEmpty());
    EXPECT_FALSE(group_->held());
  }
  std::string Manifest() {
    const std::string current = ReadLocal(directory_ + "/CURRENT");
    return current.substr(0, current.size() - 1);
  }
};

TEST_F(AdoptionTest, AClosedDatabaseIsInItsGroupFromThenOn) {
  MakePlain();
  ASSERT_OK(Adopt());
  EXPECT_EQ(Get("table") + Get("log"), "11");
  Put("later", "1");
  ExpectLocalEqualsGroup();
  Close();
  EXPECT_THAT(InfoLogText(), HasSubstr("the group holds the database"));
  EXPECT_EQ(ContentFromGroup(), (Content{{"later", "1"}, {"log", "1"}, {"table", "1"}}));
  ASSERT_OK(OpenAsMember());
  EXPECT_EQ(Get("later"), "1");
  Put("member", "1");
  ASSERT_OK(Adopt()) << "says what is so already";
  EXPECT_EQ(Get("member"), "1");
  EXPECT_FALSE(stdfs::exists(directory_ + "/hyperloop-set-aside"));
}

// When an adoption ends, nothing sends the files of a replica that lacks some.
TEST_F(AdoptionTest, ItWaitsForEachReplicaToHoldTheFiles) {
  MakePlain();
  ASSERT_OK(AdoptOnly());
  EXPECT_EQ(group_->CallsOf("await files of all"), 1);
}

TEST_F(AdoptionTest, WithoutTheWordItIsRefused) {
  MakePlain();
  const Content before = LocalFilesNow();
  ExpectRefused(OpenAsMember(), before, HasSubstr("never saw"));
}

TEST_F(AdoptionTest, AnEmptyDirectoryBecomesANewDatabase) {
  ASSERT_OK(Adopt());
  Put("a", "1");
  Close();
  ASSERT_OK(OpenAsMember());
  EXPECT_EQ(Get("a"), "1");
}

// Each call of the group fails once, taken or not. The directory stays a whole plain database.
TEST_F(AdoptionTest, CutShortAnywhereItGoesOnTheNextTime) {
  MakePlain();
  const Content all = PlainContent();
  const std::string original = root_ + "/original";
  stdfs::rename(directory_, original);
  for (const std::string call : {"create", "append", "sync", "rename", "list", "await files"}) {
    for (const bool applied : {false, true}) {
      for (int skip = 0;; ++skip) {
        SCOPED_TRACE(call + " " + std::to_string(skip) + (applied ? " applied" : ""));
        stdfs::remove_all(directory_);
        stdfs::copy(original, directory_);
        group_ = FakeGroup::Make();
        group_->Inject({call, Code::kUnavailable, applied, skip});
        const Status cut = AdoptOnly();
        if (group_->ForgetFaults()) {
          EXPECT_OK(cut);
          break;
        }
        EXPECT_THAT(cut.ToString(), HasSubstr("repeat the call"));
        ASSERT_OK(AdoptOnly());
        ASSERT_OK(OpenAsMember());
        EXPECT_EQ(ContentOf(*db_), all);
        ExpectLocalEqualsGroup();
        Close();
        EXPECT_EQ(ContentFromGroup(), all);
      }
    }
  }
}

// What the directory has no more is removed from the group, also if that is cut short.
TEST_F(AdoptionTest, WhatAnEarlierCallLeftIsForgotten) {
  for (const bool applied : {false, true}) {
    for (int skip = 0;; ++skip) {
      SCOPED_TRACE(std::to_string(skip) + (applied ? " applied" : ""));
      Close();
      stdfs::remove_all(directory_);
      group_ = FakeGroup::Make();
      MakePlain();
      WriteLocal(directory_ + "/extra", "is gone later");
      group_->Inject({"await files", Code::kUnavailable, false, 0});
      EXPECT_THAT(AdoptOnly(), StatusIs(rocksdb::Status::kIOError));
      stdfs::remove(directory_ + "/extra");
      group_->Inject({"remove", Code::kUnavailable, applied, skip});
      const Status cut = AdoptOnly();
      if (group_->ForgetFaults()) {
        EXPECT_OK(cut);
        EXPECT_GT(skip, 1);
        break;
      }
      EXPECT_THAT(cut.ToString(), HasSubstr("repeat the call"));
      ASSERT_OK(Adopt());
      EXPECT_EQ(Get("table") + Get("log"), "11");
      ExpectLocalEqualsGroup();
      EXPECT_EQ(group_->ListedFiles().count("extra"), 0u);
    }
  }
}

TEST_F(AdoptionTest, CutShortTheDirectoryIsStillAPlainDatabase) {
  MakePlain();
  group_->Inject({"create", Code::kUnavailable, false, 0});
  EXPECT_THAT(Adopt().ToString(), HasSubstr("repeat the call"));
  EXPECT_THAT(OpenAsMember().ToString(), AllOf(HasSubstr("its group none"), HasSubstr("adopt=true"),
                                               Not(HasSubstr("CURRENT out"))));
  group_->Inject({"await files", Code::kUnavailable, false, 0});
  EXPECT_THAT(Adopt().ToString(), HasSubstr("repeat the call"));
  const Content half = LocalFilesNow();
  EXPECT_THAT(OpenAsMember().ToString(), AllOf(HasSubstr("cut short"), HasSubstr("adopt=true"),
                                               HasSubstr("Nothing was changed")));
  EXPECT_TRUE(LocalFilesNow() == half);
  // Its program goes on without the plugin, and tables come and go.
  Plainly([](DB& db) {
    ASSERT_OK(db.Put({}, "plain", "1"));
    rocksdb::CompactRangeOptions compact;
    compact.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    ASSERT_OK(db.CompactRange(compact, nullptr, nullptr));
  });
  ASSERT_OK(Adopt());
  EXPECT_EQ(ContentOf(*db_), (Content{{"log", "1"}, {"plain", "1"}, {"table", "1"}}));
  ExpectLocalEqualsGroup();
  Close();
  EXPECT_EQ(ContentFromGroup().size(), 3u);
}

TEST_F(AdoptionTest, WhatIsNotWholeIsRefusedBeforeAnythingChanges) {
  MakePlain();
  const std::string table = LocalNames(".sst").at(0);
  stdfs::rename(directory_ + "/" + table, root_ + "/" + table);
  ExpectRefused(Adopt(), LocalFilesNow(), AllOf(HasSubstr("lacks files"), HasSubstr(table)));
  stdfs::rename(root_ + "/" + table, directory_ + "/" + table);
  const std::string manifest = Manifest();
  stdfs::rename(directory_ + "/" + manifest, root_ + "/" + manifest);
  ExpectRefused(Adopt(), LocalFilesNow(), AllOf(HasSubstr(manifest), HasSubstr("ldb repair")));
  stdfs::rename(root_ + "/" + manifest, directory_ + "/" + manifest);
  stdfs::rename(directory_ + "/CURRENT", root_ + "/CURRENT");
  ExpectRefused(Adopt(), LocalFilesNow(), HasSubstr("no CURRENT"));
  stdfs::rename(root_ + "/CURRENT", directory_ + "/CURRENT");
  ASSERT_OK(Adopt());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(AdoptionTest, LogsElsewhereAreNotForgotten) {
  const std::string logs = root_ + "/logs";
  Options options;
  options.wal_dir = logs;
  Plainly([](DB& db) { ASSERT_OK(db.Put({}, "log", "1")); }, options);
  const Content before = LocalFilesNow();
  ExpectRefused(Adopt(), before, AllOf(HasSubstr("wal_dir=" + logs), HasSubstr("one directory")));
  stdfs::rename(logs, root_ + "/unmounted");
  ExpectRefused(Adopt(), before, HasSubstr("cannot be read"));
  stdfs::rename(root_ + "/unmounted", logs);
  for (const auto& entry : stdfs::directory_iterator(logs))
    if (entry.path().extension() == ".log")
      stdfs::rename(entry.path(), directory_ / entry.path().filename());
  ASSERT_OK(Adopt());
  EXPECT_EQ(Get("log"), "1");
}

// Files that are none of RocksDB's, or that this process may only read, are no hindrance.
TEST_F(AdoptionTest, WhatElseLiesInTheDirectoryIsLeftThere) {
  MakePlain();
  stdfs::create_directories(directory_ + "/lost+found");
  stdfs::create_symlink("nowhere", directory_ + "/dangling");
  ASSERT_EQ(mkfifo((directory_ + "/fifo").c_str(), 0600), 0);
  WriteLocal(directory_ + "/" + std::string(80, 'n'), "long");
  WriteLocal(directory_ + "/back\\slash", "odd");
  WriteLocal(directory_ + "/CURRENT.adopting", "a name of the group's");
  WriteLocal(directory_ + "/note", "the group takes it");
  stdfs::permissions(directory_ + "/" + LocalNames(".sst").at(0), stdfs::perms::owner_read);
  ASSERT_OK(Adopt());
  EXPECT_EQ(Get("table") + Get("log"), "11");
  EXPECT_THAT(InfoLogText(), HasSubstr("left out, because they are no files of a database: 3"));
  EXPECT_EQ(group_->ListedFiles().count("note"), 1u);
  EXPECT_EQ(group_->ListedFiles().count("CURRENT.adopting"), 0u);
}

TEST_F(AdoptionTest, LogsThatDoNotFitAreRefusedBeforeAnyIsSent) {
  Options options;
  options.avoid_flush_during_recovery = true;
  Plainly([](DB& db) { ASSERT_OK(db.Put({}, "big", std::string(6 << 20, 'b'))); }, options);
  const Content before = LocalFilesNow();
  group_->SetExtents(8);  // four of them are for the MANIFEST
  ExpectRefused(Adopt(), before,
                AllOf(HasSubstr("take 8388608 B"), HasSubstr("takes 3145728 B of logs"),
                      HasSubstr("resize")));
  PlainContent();  // flushes the log
  ASSERT_OK(Adopt());
  EXPECT_EQ(Get("big").size(), size_t{6} << 20);
}

TEST_F(AdoptionTest, AGroupThatHoldsADatabaseKeepsIt) {
  ASSERT_OK(Open(MakeOptions()));
  Put("group", "1");
  Close();
  const std::string member = directory_;
  directory_ = root_ + "/other";
  MakePlain();
  const Content before = LocalFilesNow();
  const Content group = group_->LogFiles();
  EXPECT_THAT(Adopt().ToString(), HasSubstr("never saw"));
  EXPECT_TRUE(LocalFilesNow() == before);
  EXPECT_TRUE(group_->LogFiles() == group);
  directory_ = member;
  ASSERT_OK(OpenAsMember());
  EXPECT_EQ(Get("group"), "1");
}

}  // namespace
}  // namespace hyperloop::plugin::testing
