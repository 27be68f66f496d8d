// Directories that lack files which the group needs, that were changed without the group, or that
// are copies, are refused before anything changes. The tests also follow each way out that a
// refusal names.
#include "judge.h"

#include <rocksdb/convenience.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::DB;
using rocksdb::Options;
using rocksdb::Status;
using rocksdb::WriteOptions;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Fails to move files of these names, so that opening is cut short there.
class StuckFiles : public rocksdb::FileSystemWrapper {
 public:
  explicit StuckFiles(std::string suffix)
      : FileSystemWrapper(rocksdb::FileSystem::Default()), suffix_(std::move(suffix)) {}
  const char* Name() const override { return "stuck files"; }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    if (from.ends_with(suffix_)) return rocksdb::IOStatus::IOError("injected");
    return target()->RenameFile(from, to, options, dbg);
  }

 private:
  const std::string suffix_;
};

class FullDisk : public rocksdb::FileSystemWrapper {
 public:
  FullDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "full disk"; }
  rocksdb::IOStatus GetFreeSpace(const std::string&, const rocksdb::IOOptions&, uint64_t* bytes,
                                 rocksdb::IODebugContext*) override {
    *bytes = 10;
    return rocksdb::IOStatus::OK();
  }
};

class JudgeTest : public DatabaseTest {
 protected:
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  std::string Set(const std::string& name) { return Path("hyperloop-set-aside/epoch-") + name; }

  // A table with "table" and a log with "log", closed.
  void Make() {
    ASSERT_OK(Open(MakeOptions()));
    Put("table", "1");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    Put("log", "1");
    Close();
  }
  static void PutPlain(DB& db) { ASSERT_OK(db.Put(WriteOptions(), "plain", "1")); }
  static void Compact(DB& db) {
    ASSERT_OK(db.Put(WriteOptions(), "plain", "1"));
    rocksdb::CompactRangeOptions all;
    all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    ASSERT_OK(db.CompactRange(all, nullptr, nullptr));
  }
  Status OpenWith(const StoreOptions& store_options) {
    Close();
    env_.reset();
    fs_ = MakeFileSystem(store_options);
    env_ = rocksdb::NewCompositeEnv(fs_);
    return Open(MakeOptions());
  }
  StoreOptions Rebinding() const {
    StoreOptions options = MakeStoreOptions();
    options.rebind = true;
    return options;
  }
  // Opening fails with `reason`; neither group nor directory changes.
  void ExpectRefused(const ::testing::Matcher<std::string>& reason) {
    ExpectRefused(reason, MakeStoreOptions());
  }
  void ExpectRefused(const ::testing::Matcher<std::string>& reason, const StoreOptions& with,
                     Status::Code code = Status::kInvalidArgument) {
    const auto files = LocalFilesNow();
    const auto logs = group_->LogFiles();
    const uint64_t epoch = group_->epoch();
    const bool held = group_->held();
    const Status status = OpenWith(with);
    EXPECT_THAT(status, StatusIs(code));
    EXPECT_THAT(status.ToString(), reason);
    EXPECT_EQ(LocalFilesNow(), files);
    EXPECT_EQ(group_->LogFiles(), logs);
    EXPECT_EQ(group_->epoch(), epoch);
    EXPECT_EQ(group_->held(), held);
  }
  // The directory proves that its group went back to an older state.
  void ExpectLost(const ::testing::Matcher<std::string>& proof) {
    ExpectRefused(
        AllOf(HasSubstr("holds what was acknowledged and its group has lost. Two ways out"), proof,
              HasSubstr("move " + Path("CURRENT")), HasSubstr("move " + Path("HYPERLOOP"))),
        MakeStoreOptions(), Status::kCorruption);
    EXPECT_THAT(fs_->Examine(directory_), StatusIs(hyperloop::Code::kCorruption));
  }
  // A table of the directory's own history, with "precious", beside what Make made.
  void AddTable() {
    Plainly(directory_, [](DB& db) {
      ASSERT_OK(db.Put(WriteOptions(), "plain", "precious"));
      ASSERT_OK(db.Flush(rocksdb::FlushOptions()));
    });
  }
  // The group's history is opened, and goes on; that table is kept.
  void ExpectTableOutlivesOpening() {
    ExpectOpens(MakeStoreOptions());
    Put("x", "1");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    Close();
    int kept = 0;
    for (const auto& entry : stdfs::recursive_directory_iterator(directory_)) {
      if (entry.path().extension() == ".sst" &&
          ReadLocal(entry.path()).find("precious") != std::string::npos) {
        ++kept;
      }
    }
    EXPECT_EQ(kept, 1);
  }
  void ExpectOpens(const StoreOptions& with) {
    const Status status = OpenWith(with);
    ASSERT_OK(status);
    ExpectLocalEqualsGroup();
  }
};

TEST_F(JudgeTest, PlainPutIsRefusedAndTheGroupCanBeKept) {
  Make();
  Plainly(directory_, PutPlain);
  ExpectRefused(AllOf(HasSubstr("was changed without its group. Two ways out"),
                      HasSubstr("its CURRENT names MANIFEST-"),
                      HasSubstr("or the group's pools are older copies of themselves"),
                      HasSubstr("Nothing was changed"), HasSubstr("move " + Path("CURRENT")),
                      HasSubstr("move " + Path("HYPERLOOP"))));
  stdfs::rename(Path("CURRENT"), root_ + "/CURRENT");
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
  EXPECT_THAT(Get("plain"), HasSubstr("NotFound"));
  // The other history was set aside as a whole.
  EXPECT_THAT(InfoLogText(), HasSubstr("is kept in " + Path("hyperloop-set-aside/epoch-2")));
  const std::string current = ReadLocal(root_ + "/CURRENT");
  EXPECT_TRUE(stdfs::exists(Set("2/") + current.substr(0, current.size() - 1)));
  const std::string aside = root_ + "/aside";
  stdfs::create_directories(aside);
  for (const auto& entry : stdfs::directory_iterator(Set("2")))
    stdfs::copy(entry.path(), aside / entry.path().filename());
  stdfs::copy(root_ + "/CURRENT", aside + "/CURRENT");
  for (const auto& table : LocalNames(".sst")) {
    if (!stdfs::exists(aside + "/" + table)) stdfs::copy(Path(table), aside + "/" + table);
  }
  Plainly(aside, [](DB& db) {
    std::string value;
    EXPECT_OK(db.Get(rocksdb::ReadOptions(), "plain", &value));
    EXPECT_OK(db.Get(rocksdb::ReadOptions(), "log", &value));
  });
}

// All replicas, and the primary's pool, went back to an older state of the same session.
TEST_F(JudgeTest, ALogThatTheGroupHasLostIsRefusedAndEitherCanBeKept) {
  ASSERT_OK(Open(MakeOptions()));
  Put("table", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("log", "1");
  const auto older = group_->AfterCrash();
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("later", "1");
  Crash();
  const std::string newer = directory_;
  group_ = older;
  ExpectLost(HasSubstr(".log is newer than every file that the group knows of"));

  // Without the plugin the directory has everything.
  stdfs::copy(newer, root_ + "/plain", stdfs::copy_options::recursive);
  stdfs::remove(root_ + "/plain/HYPERLOOP");
  Plainly(root_ + "/plain", [](DB& db) {
    std::string value;
    for (const char* key : {"table", "log", "later"}) EXPECT_OK(db.Get({}, key, &value)) << key;
  });

  stdfs::rename(Path("CURRENT"), root_ + "/moved");
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

// A file that is not RocksDB's own may have any number in its name.
TEST_F(JudgeTest, ALogThatTheGroupHasLostIsNotHiddenByAnotherFilesNumber) {
  ASSERT_OK(Open(MakeOptions()));
  Put("log", "1");
  std::unique_ptr<rocksdb::FSWritableFile> dump;
  ASSERT_OK(fs_->NewWritableFile(Path("dump-20260101.bin"), {}, &dump, nullptr));
  ASSERT_OK(dump->Append("x", {}, nullptr));
  ASSERT_OK(dump->Close({}, nullptr));
  dump.reset();
  ASSERT_EQ(group_->ListedFiles().count("dump-20260101.bin"), 1u);
  const auto older = group_->AfterCrash();
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("later", "1");
  Crash();
  group_ = older;
  ExpectLost(HasSubstr(".log is newer than every file that the group knows of"));
}

// The last act of the session was a flush, so that its newest log is empty.
TEST_F(JudgeTest, AFlushThatTheGroupHasLostIsRefusedAndEitherCanBeKept) {
  ASSERT_OK(Open(MakeOptions()));
  Put("log", "1");
  const auto older = group_->AfterCrash();
  Put("later", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Crash();
  const std::string newer = directory_;
  group_ = older;
  ExpectLost(
      ContainsRegex("its MANIFEST-[0-9]* goes on where the group's ends, and names "
                    "[0-9]*.sst, of which the group knows nothing"));

  stdfs::copy(newer, root_ + "/plain", stdfs::copy_options::recursive);
  stdfs::remove(root_ + "/plain/HYPERLOOP");
  Plainly(root_ + "/plain", [](DB& db) {
    std::string value;
    for (const char* key : {"log", "later"}) EXPECT_OK(db.Get({}, key, &value)) << key;
  });

  stdfs::rename(Path("CURRENT"), root_ + "/moved");
  ASSERT_NO_FATAL_FAILURE(ExpectOpens(MakeStoreOptions()));
  EXPECT_EQ(Get("log"), "1");
}

// The directory's MANIFEST may have a record that was on its way when the primary was killed.
TEST_F(JudgeTest, ARecordOfTheManifestThatTheGroupNeverHadIsNoLoss) {
  ASSERT_OK(Open(MakeOptions()));
  Put("log", "1");
  std::shared_ptr<FakeGroup> killed;
  group_->BeforeNextAppend([&] { killed = group_->AfterCrash(); });
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  ASSERT_NE(killed, nullptr);
  const std::string table = LocalNames(".sst").at(0);
  EXPECT_EQ(killed->ListedFiles().count(table), 1u);
  Crash();
  group_ = killed;
  ASSERT_NO_FATAL_FAILURE(ExpectOpens(MakeStoreOptions()));
  EXPECT_EQ(Get("log"), "1");
}

// An opening may be cut short anywhere. The files which show that the tables are the directory's
// own stay until the tables are set aside.
TEST_F(JudgeTest, TablesOfTheOtherHistoryOutliveAnOpeningThatIsCutShort) {
  Make();
  AddTable();
  stdfs::rename(Path("CURRENT"), root_ + "/CURRENT");
  env_.reset();
  fs_ = MakeFileSystem(MakeStoreOptions(), std::make_shared<StuckFiles>(".sst"));
  env_ = rocksdb::NewCompositeEnv(fs_);
  ASSERT_THAT(Open(MakeOptions()).ToString(), HasSubstr("injected"));
  ExpectTableOutlivesOpening();
}

// What is missing would be written after the group was taken from its former primary.
TEST_F(JudgeTest, NoRoomForWhatTheDirectoryLacksIsRefused) {
  Make();
  for (const auto& [name, content] : group_->LogFiles())
    if (name.ends_with(".log")) stdfs::remove(Path(name));
  const uint64_t epoch = group_->epoch();
  env_.reset();
  fs_ = MakeFileSystem(MakeStoreOptions(), std::make_shared<FullDisk>());
  env_ = rocksdb::NewCompositeEnv(fs_);
  EXPECT_THAT(Open(MakeOptions()), StatusIs(rocksdb::Status::kNoSpace, HasSubstr("make room")));
  EXPECT_EQ(group_->epoch(), epoch);
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("log"), "1");
}

// Those that stay have not been sent the tables yet.
TEST_F(JudgeTest, NoReplicaIsRemovedWhileTooFewHoldTheTables) {
  Make();
  group_->SayThatAllIsScarce();
  const auto before = LocalFilesNow();
  const Status refused = OpenWith(MakeStoreOptions());
  EXPECT_THAT(refused.ToString(),
              AllOf(HasSubstr("no replica is removed now"), HasSubstr(".sst"),
                    HasSubstr("without remove_replica"), HasSubstr("on_replica_failure=continue"),
                    Not(HasSubstr("--force"))));
  EXPECT_EQ(LocalFilesNow(), before);
  group_->SayThatAllIsScarce(false);
  ASSERT_OK(OpenWith(MakeStoreOptions()));
  EXPECT_EQ(Get("table"), "1");
}

// A replica on this machine, whose directory of files has the tables that the directory lost. There
// is room for nothing that is copied.
class NearReplicaTest : public JudgeTest {
 protected:
  ~NearReplicaTest() override { stdfs::remove_all(elsewhere_); }
  static constexpr char kOwnGroup[] = "fake-group";

  // Moves the directory's table to where a replica below `place` keeps it for `group`.
  void MoveTable(const std::string& place, const std::string& group) {
    Make();
    group_->SayThatAllIsHeld();
    const std::string table = LocalNames(".sst").at(0);
    const auto file = Describe(*rocksdb::FileSystem::Default(), Path(table), table);
    ASSERT_OK(file);
    char name[64];
    std::snprintf(name, sizeof name, "%s@%016llx", table.c_str(),
                  static_cast<unsigned long long>(file->checksum));
    held_ = place + "/" + group + "/" + name;
    stdfs::create_directories(place + "/" + group);
    stdfs::copy(Path(table), held_);
    stdfs::remove(Path(table));
  }
  Status OpenBeside(const std::string& place) {
    env_.reset();
    fs_ = MakeFileSystem(MakeStoreOptions(), std::make_shared<FullDisk>(),
                         {.must_hold_database = true, .near = NearFiles({place})});
    env_ = rocksdb::NewCompositeEnv(fs_);
    return Open(MakeOptions());
  }
  // Nobody is fenced.
  void ExpectNoRoomBeside(const std::string& place) {
    const uint64_t epoch = group_->epoch();
    EXPECT_THAT(OpenBeside(place), StatusIs(rocksdb::Status::kNoSpace, HasSubstr("make room")));
    EXPECT_EQ(group_->epoch(), epoch);
  }

  std::string elsewhere_, held_;
};

TEST_F(NearReplicaTest, WhatIsLinkedNeedsNoRoom) {
  ASSERT_NO_FATAL_FAILURE(MoveTable(root_ + "/files", kOwnGroup));
  const Status opened = OpenBeside(root_ + "/files");
  ASSERT_OK(opened);
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(NearReplicaTest, FilesOfAnotherGroupAreNotLinked) {
  ASSERT_NO_FATAL_FAILURE(MoveTable(root_ + "/files", "22222222-2222-4222-8222-222222222222"));
  ExpectNoRoomBeside(root_ + "/files");
}

TEST_F(NearReplicaTest, FilesOnAnotherFileSystemAreNotLinked) {
  elsewhere_ = ::testing::TempDir() + "/hyperloop-near-" + std::to_string(getpid());
  ASSERT_NO_FATAL_FAILURE(MoveTable(elsewhere_, kOwnGroup));
  struct stat here, there;
  ASSERT_EQ(stat(root_.c_str(), &here) + stat(elsewhere_.c_str(), &there), 0);
  if (here.st_dev == there.st_dev) GTEST_SKIP() << root_ << " and TMPDIR are one file system";
  ExpectNoRoomBeside(elsewhere_);
}

TEST_F(NearReplicaTest, FilesOfAnotherUserAreNotLinked) {
  ASSERT_NO_FATAL_FAILURE(MoveTable(root_ + "/files", kOwnGroup));
  if (chown(held_.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root can give a file away";
  ExpectNoRoomBeside(root_ + "/files");
}

// Asking takes time, above all where a replica does not answer.
TEST_F(JudgeTest, ReplicasAreNotAskedForFilesThatAreThere) {
  Make();
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(group_->CallsOf("held"), 0);
}

// The way out for a MANIFEST that differs is to move it away, so that none is left to be set aside.
TEST_F(JudgeTest, TablesOfTheOtherHistoryOutliveTheirManifest) {
  Make();
  const std::string current = group_->LogFiles().at("CURRENT");
  const std::string manifest = current.substr(0, current.size() - 1);
  AddTable();
  const std::string theirs = ReadLocal(Path("CURRENT"));
  stdfs::rename(Path(theirs.substr(0, theirs.size() - 1)), Path(manifest));
  WriteLocal(Path("CURRENT"), current);
  ExpectRefused(HasSubstr("move " + Path(manifest)));
  stdfs::rename(Path(manifest), root_ + "/" + manifest);
  ExpectTableOutlivesOpening();
}

TEST_F(JudgeTest, PlainPutIsRefusedAndTheDirectoryCanBeKept) {
  Make();
  Plainly(directory_, PutPlain);
  ExpectRefused(HasSubstr("was changed without its group"));
  stdfs::rename(Path("HYPERLOOP"), root_ + "/HYPERLOOP");
  Plainly(directory_, [](DB& db) {
    for (const char* key : {"table", "log", "plain"}) {
      std::string value;
      EXPECT_OK(db.Get(rocksdb::ReadOptions(), key, &value)) << key;
    }
  });
  ExpectRefused(HasSubstr("the group never saw"));
}

TEST_F(JudgeTest, PlainCompactionIsRefusedAndNamesTheTablesThatItTook) {
  Make();
  const std::string table = LocalNames(".sst").at(0);
  stdfs::copy(Path(table), root_ + "/backup.sst");
  Plainly(directory_, Compact);
  ASSERT_FALSE(stdfs::exists(Path(table)));
  ExpectRefused(AllOf(HasSubstr("was changed without its group"),
                      HasSubstr("no replica within reach has, 1 (" + table + ")")));
  stdfs::rename(Path("CURRENT"), root_ + "/CURRENT");
  ExpectRefused(AllOf(HasSubstr("lacks files that MANIFEST-"),
                      ContainsRegex(" needs[.] Two ways out: .*" + table)));
  stdfs::copy(root_ + "/backup.sst", Path(table));
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
  EXPECT_THAT(Get("plain"), HasSubstr("NotFound"));
}

TEST_F(JudgeTest, MissingTableIsRefusedUntilItIsBack) {
  Make();
  const std::string table = LocalNames(".sst").at(0);
  stdfs::rename(Path(table), root_ + "/" + table);
  ExpectRefused(AllOf(HasSubstr("lacks files that MANIFEST-"), HasSubstr("1 (" + table + ")"),
                      HasSubstr("put them into the directory"),
                      HasSubstr("move " + Path("HYPERLOOP"))));
  WriteLocal(Path(table), "another file");
  ExpectRefused(HasSubstr("here 12 B"));
  stdfs::rename(root_ + "/" + table, Path(table));
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(JudgeTest, WithoutTheMissingTableRepairOpensWhatIsLeft) {
  Make();
  stdfs::remove(Path(LocalNames(".sst").at(0)));
  ExpectRefused(HasSubstr("ldb repair opens what is left"));
  stdfs::remove(Path("HYPERLOOP"));
  ASSERT_OK(rocksdb::RepairDB(directory_, Options()));
  Plainly(directory_, [](DB& db) {
    std::string value;
    EXPECT_OK(db.Get(rocksdb::ReadOptions(), "log", &value));
  });
}

TEST_F(JudgeTest, OnlyTablesThatTheManifestNamesAreNeeded) {
  Make();
  ASSERT_OK(OpenWith(MakeStoreOptions()));
  const std::string obsolete = "000900.sst";  // listed, but of no version
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path(obsolete), rocksdb::FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("x", rocksdb::IOOptions(), nullptr));
  ASSERT_OK(file->Close(rocksdb::IOOptions(), nullptr));
  file.reset();
  Crash();
  ASSERT_EQ(group_->ListedFiles().count(obsolete), 1u);
  stdfs::remove(Path(obsolete));  // as a power failure does, before the directory was fsynced
  const Status status = Open(MakeOptions());
  ASSERT_OK(status);
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(JudgeTest, RestoringWithoutTheTablesFencesNobody) {
  ASSERT_OK(Open(MakeOptions()));
  Put("table", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  StoreOptions rival = MakeStoreOptions();
  rival.takeover = rival.restore = rival.rebind = true;
  const auto rival_fs = MakeFileSystem(rival);
  const auto rival_env = rocksdb::NewCompositeEnv(rival_fs);
  Options options = MakeOptions();
  options.env = rival_env.get();
  DB* opened = nullptr;
  const Status refused = DB::Open(options, root_ + "/rival", &opened);
  EXPECT_THAT(refused.ToString(), HasSubstr("lacks files that MANIFEST-"));
  EXPECT_EQ(group_->epoch(), 1u);
  Put("later", "1");  // nobody took anything
  // With its tables the directory can be opened.
  for (const auto& table : LocalNames(".sst")) stdfs::copy(Path(table), root_ + "/rival/" + table);
  const Status taken = DB::Open(options, root_ + "/rival", &opened);
  ASSERT_OK(taken);
  const std::unique_ptr<DB> db(opened);
  std::string value;
  EXPECT_OK(db->Get(rocksdb::ReadOptions(), "later", &value));
  EXPECT_THAT(db_->Put(WriteOptions(), "late", "1"), StatusIs(rocksdb::Status::kIOFenced));
}

// The group's MANIFEST roll was killed before the directory followed; then a stock tool opened it
// and gave its own MANIFEST the same number.
TEST_F(JudgeTest, AnotherManifestOfTheSameNumberIsRefused) {
  Make();
  const auto logs = group_->LogFiles();
  std::string current = logs.at("CURRENT");
  current.pop_back();
  std::string other = logs.at(current);
  Plainly(directory_, PutPlain);
  std::string theirs = ReadLocal(Path("CURRENT"));
  theirs.pop_back();
  stdfs::rename(Path(theirs), Path(current));
  WriteLocal(Path("CURRENT"), current + "\n");
  ASSERT_NE(ReadLocal(Path(current)), other);
  ExpectRefused(AllOf(HasSubstr("its " + current + " has another record than the group's"),
                      HasSubstr("move " + Path(current))));
  stdfs::rename(Path(current), root_ + "/" + current);
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

// Nobody has encrypted a database whose CURRENT the group has as text.
TEST_F(JudgeTest, ADamagedCurrentBesideAStrayManifestIsReplaced) {
  Make();
  WriteLocal(Path("CURRENT"), std::string(20, '\xd1'));
  WriteLocal(Path("MANIFEST-009999"), "stray");
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

// No state that a kill leaves is taken for another history. The test tries each state of the
// directory between two namespace changes while RocksDB opens, rolls MANIFEST and is destroyed. The
// group has made as many changes, or one more.
class StatesFileSystem : public rocksdb::FileSystemWrapper {
 public:
  StatesFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base, std::function<void()> keep)
      : FileSystemWrapper(base), keep_(std::move(keep)) {}
  const char* Name() const override { return "states"; }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* dbg) override {
    keep_();
    return target()->NewWritableFile(path, options, file, dbg);
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    keep_();
    return target()->RenameFile(from, to, options, dbg);
  }
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override {
    keep_();
    return target()->DeleteFile(path, options, dbg);
  }

 private:
  const std::function<void()> keep_;
};

class StatesTest : public JudgeTest {
 protected:
  // A new MANIFEST begins when one has that many bytes.
  void ExpectNoStateIsRefused(size_t max_manifest_file_size);
};

TEST_F(StatesTest, NoStateOfAKillIsRefused) { ExpectNoStateIsRefused(1); }

TEST_F(StatesTest, NorWhereTheManifestGoesOn) { ExpectNoStateIsRefused(1 << 30); }

void StatesTest::ExpectNoStateIsRefused(size_t max_manifest_file_size) {
  Make();
  struct State {
    std::string directory;
    std::shared_ptr<FakeGroup> group;
    bool destroying;
  };
  std::vector<State> states;
  bool destroying = false;
  const auto keep = [&] {
    if (!stdfs::exists(Path("HYPERLOOP"))) return;
    const std::string copy = root_ + "/state" + std::to_string(states.size());
    stdfs::copy(directory_, copy, stdfs::copy_options::recursive);
    stdfs::remove(copy + "/LOCK");
    stdfs::remove(copy + "/HYPERLOOP");
    stdfs::create_hard_link(Path("HYPERLOOP"), copy + "/HYPERLOOP");
    states.push_back({copy, group_->AfterCrash(), destroying});
  };
  const StoreOpener open_store = [this](const StoreOptions& with,
                                        std::shared_ptr<Log>) -> Result<std::unique_ptr<Store>> {
    return MakeFakeStore(group_, with);
  };
  const auto base = std::make_shared<StatesFileSystem>(rocksdb::FileSystem::Default(), keep);
  fs_ = std::make_shared<HyperloopFileSystem>(base, MakeStoreOptions(), open_store);
  env_ = rocksdb::NewCompositeEnv(fs_);
  Options options = MakeOptions();
  options.max_manifest_file_size = max_manifest_file_size;
  options.max_background_jobs = 1;
  ASSERT_OK(Open(options));
  Put("more", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  ASSERT_OK(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  Close();
  destroying = true;
  ASSERT_OK(rocksdb::DestroyDB(directory_, options));
  ASSERT_GT(states.size(), 20u);
  for (const State& state : states) {
    SCOPED_TRACE(state.directory);
    directory_ = state.directory;
    group_ = state.group;
    if (!state.destroying) {
      ExpectOpens(MakeStoreOptions());
      EXPECT_EQ(Get("table") + Get("log"), "11");
      Close();
    }
    fs_ = MakeFileSystem(MakeStoreOptions());
    env_ = rocksdb::NewCompositeEnv(fs_);
    const Status destroyed = rocksdb::DestroyDB(directory_, MakeOptions());
    EXPECT_OK(destroyed);
  }
}

// DestroyDB deletes in any order. Here it is killed, for each of the logs, when the group no longer
// has the log and the directory still has it.
TEST_F(JudgeTest, DestroyCutShortAnywhereCanBeRepeated) {
  Make();
  const std::string original = directory_;
  const auto whole = group_;
  for (const auto& [name, content] : whole->LogFiles()) {
    SCOPED_TRACE(name);
    directory_ = root_ + "/without-" + name;
    stdfs::copy(original, directory_, stdfs::copy_options::recursive);
    stdfs::remove(Path("HYPERLOOP"));
    stdfs::create_hard_link(original + "/HYPERLOOP", Path("HYPERLOOP"));
    group_ = whole->AfterCrash();
    auto store = MakeFakeStore(group_, MakeStoreOptions());
    TakeResult taken;
    ASSERT_OK(store->Take({directory_, false, group_->pairing(), nullptr}, &taken));
    ASSERT_OK(store->Remove(name));
    store.reset();
    fs_ = MakeFileSystem(MakeStoreOptions());
    env_ = rocksdb::NewCompositeEnv(fs_);
    const Status destroyed = rocksdb::DestroyDB(directory_, MakeOptions());
    EXPECT_OK(destroyed);
    EXPECT_THAT(group_->LogFiles(), IsEmpty());
  }
}

// --- copies ---

TEST_F(JudgeTest, CopyIsRefusedUntilItIsRebound) {
  Make();
  const std::string original = directory_;
  const std::string copy = root_ + "/copy";
  stdfs::copy(original, copy, stdfs::copy_options::recursive);
  directory_ = copy;
  ExpectRefused(AllOf(HasSubstr(copy + " is a copy"), HasSubstr("written in " + original),
                      HasSubstr("rebind=true")));
  ExpectOpens(Rebinding());
  Put("copy", "1");
  ExpectOpens(MakeStoreOptions());  // once is enough
  EXPECT_EQ(Get("copy") + Get("log"), "11");
  Close();
  // From now on the original is refused, until it is rebound itself.
  directory_ = original;
  ExpectRefused(AllOf(HasSubstr("bound to " + copy), HasSubstr("rebind=true")));
  for (const auto& entry : stdfs::directory_iterator(copy)) {
    if (IsTableOrBlob(entry.path().filename().string()))
      stdfs::copy(entry.path(), original, stdfs::copy_options::skip_existing);
  }
  listed_files_lost_ = true;  // OPTIONS files, which nobody needs
  ExpectOpens(Rebinding());
  EXPECT_EQ(Get("copy") + Get("log"), "11");
  Close();
  directory_ = copy;
  ExpectRefused(HasSubstr("rebind=true"));
}

// A table that only looks like the group's is found whenever the directory is bound anew, and as
// long as that is not finished. Here it is cut short because nobody gives the table.
class RebindingTest : public JudgeTest {
 protected:
  // The directory and a copy of it, with another table of the same name and size.
  void MakeAnotherTable() {
    Make();
    original_ = directory_;
    table_ = LocalNames(".sst").at(0);
    bytes_ = ReadLocal(Path(table_));
    directory_ = root_ + "/copy";
    stdfs::copy(original_, directory_, stdfs::copy_options::recursive);
    std::string other = bytes_;
    other[100] ^= 1;
    WriteLocal(Path(table_), other);
  }
  std::string Outcome(const StoreOptions& options) { return OpenWith(options).ToString(); }

  std::string original_, table_, bytes_;
};

TEST_F(RebindingTest, IsFinishedByTheNextOpeningWithoutTheWord) {
  ASSERT_NO_FATAL_FAILURE(MakeAnotherTable());
  EXPECT_THAT(Outcome(Rebinding()), HasSubstr("cannot bring " + table_));
  EXPECT_THAT(Outcome(MakeStoreOptions()), HasSubstr("cannot bring " + table_));
  WriteLocal(Path(table_), bytes_);
  ExpectOpens(MakeStoreOptions());
  EXPECT_EQ(Get("table") + Get("log"), "11");
  Close();
  // From then on only sizes are compared.
  std::string other = bytes_;
  other[100] ^= 1;
  WriteLocal(Path(table_), other);
  EXPECT_THAT(Outcome(MakeStoreOptions()), Not(HasSubstr("cannot bring")));
}

TEST_F(RebindingTest, NeedsTheWordAgainIfTheDirectoryDoesNotKnowOfIt) {
  ASSERT_NO_FATAL_FAILURE(MakeAnotherTable());
  EXPECT_THAT(Outcome(Rebinding()), HasSubstr("cannot bring " + table_));
  // Now the original is bound again, and the kill comes before that is noted.
  directory_ = original_;
  fs_ = MakeFileSystem(Rebinding(), std::make_shared<StuckFiles>("HYPERLOOP.tmp"));
  env_ = rocksdb::NewCompositeEnv(fs_);
  ASSERT_THAT(Open(MakeOptions()).ToString(), HasSubstr("injected"));
  ExpectRefused(HasSubstr("rebind=true"));
  ExpectOpens(Rebinding());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(JudgeTest, RenamedDirectoryIsNoCopy) {
  Make();
  const std::string moved = root_ + "/moved";
  stdfs::rename(directory_, moved);
  directory_ = moved;
  ExpectOpens(MakeStoreOptions());
  EXPECT_THAT(ReadLocal(Path("HYPERLOOP")), HasSubstr("directory " + moved + "\n"));
}

TEST_F(JudgeTest, RestoredBackupOfTheSamePathIsACopy) {
  Make();
  stdfs::copy(directory_, root_ + "/backup", stdfs::copy_options::recursive);
  stdfs::rename(directory_, root_ + "/before");  // keeps its inodes taken
  stdfs::copy(root_ + "/backup", directory_, stdfs::copy_options::recursive);
  ExpectRefused(AllOf(HasSubstr("is a copy"), HasSubstr("rebind=true")));
  ExpectOpens(Rebinding());
  EXPECT_EQ(Get("table") + Get("log"), "11");
}

TEST_F(JudgeTest, ExaminingFindsWhatOpeningWouldAndTakesNothing) {
  Make();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_THAT(fs_->Examine(directory_), StatusIs(hyperloop::Code::kBusy)) << "it is open here";
  Close();
  const uint64_t epoch = group_->epoch();
  EXPECT_OK(fs_->Examine(directory_));
  Plainly(directory_, [](rocksdb::DB& db) { ASSERT_OK(db.Put({}, "plain", "1")); });
  const std::map<std::string, std::string> before = LocalFilesNow();
  const hyperloop::Status found = fs_->Examine(directory_);
  EXPECT_THAT(found.message(), HasSubstr("was changed without its group"));
  EXPECT_EQ(LocalFilesNow(), before);
  EXPECT_EQ(group_->epoch(), epoch);
  EXPECT_FALSE(group_->held());
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr(found.message()));
}

}  // namespace
}  // namespace hyperloop::plugin::testing
