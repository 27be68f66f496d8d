// Two cases besides the logs of an open directory: the same directory while nobody has it open, and
// the directories below it. These tests check the table in docs/rocksdb-plugin.md.
#include <rocksdb/convenience.h>
#include <rocksdb/listener.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>
#include <fstream>

#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::DB;
using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Options;
using rocksdb::ReadOptions;
using rocksdb::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AroundTest : public DatabaseTest {
 protected:
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  void Make() {
    ASSERT_TRUE(Open(MakeOptions()).ok());
    Put("table", "1");
    ASSERT_TRUE(db_->Flush(rocksdb::FlushOptions()).ok());
    Put("log", "1");
  }
  void ExpectWhole() {
    Close();
    const Status status = Open(MakeOptions());
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(Get("table") + Get("log"), "11");
    ExpectLocalEqualsGroup();
  }
  std::string LogName() { return LocalNames(".log").at(0); }
  IOStatus Write(const std::string& path) {
    std::unique_ptr<rocksdb::FSWritableFile> file;
    return fs_->NewWritableFile(path, FileOptions(), &file, nullptr);
  }
};

// --- the directory while it is not open ---

TEST_F(AroundTest, LogsOfADirectoryThatIsNotOpenCannotBeChanged) {
  Make();
  Close();
  stdfs::create_directories(Path("archive"));
  WriteLocal(root_ + "/elsewhere", "x");
  const std::string log = Path(LogName());
  const auto refused = [&](const IOStatus& status) {
    EXPECT_THAT(status.ToString(),
                AllOf(HasSubstr(directory_ + " holds a replicated database"),
                      HasSubstr("would be undone at the next open"), HasSubstr("HYPERLOOP away")));
  };
  std::unique_ptr<rocksdb::FSWritableFile> file;
  std::unique_ptr<rocksdb::FSRandomRWFile> random;
  for (const char* name :
       {"000900.log", "MANIFEST-000900", "CURRENT", "000900.dbtmp", "archive/000900.log"}) {
    SCOPED_TRACE(name);
    refused(Write(Path(name)));
    refused(fs_->ReopenWritableFile(Path(name), FileOptions(), &file, nullptr));
    refused(fs_->RenameFile(root_ + "/elsewhere", Path(name), IOOptions(), nullptr));
    refused(fs_->LinkFile(root_ + "/elsewhere", Path(name), IOOptions(), nullptr));
    refused(
        fs_->ReuseWritableFile(Path(name), root_ + "/elsewhere", FileOptions(), &file, nullptr));
  }
  refused(fs_->NewRandomRWFile(log, FileOptions(), &random, nullptr));
  for (const std::string& path :
       {log, Path("CURRENT"), Path("HYPERLOOP"), Path(LocalNames(".sst").at(0))}) {
    SCOPED_TRACE(path);
    refused(fs_->DeleteFile(path, IOOptions(), nullptr));
    refused(fs_->Truncate(path, 0, IOOptions(), nullptr));
    refused(fs_->RenameFile(path, root_ + "/away", IOOptions(), nullptr));
  }
  refused(Write(Path(LocalNames(".sst").at(0))));
  EXPECT_TRUE(stdfs::exists(root_ + "/elsewhere"));
  // RocksDB makes these calls before it locks, and tools that only read make them too.
  EXPECT_TRUE(Write(Path("LOG")).ok() && Write(Path("IDENTITY")).ok());
  EXPECT_TRUE(Write(Path("000901.sst")).ok()) << "a new table harms nobody";
  EXPECT_TRUE(fs_->DeleteFile(Path("LOG"), IOOptions(), nullptr).ok());
  ExpectWhole();
}

TEST_F(AroundTest, DirectoriesThatAreNotReplicatedAreFree) {
  Make();
  Close();
  const std::string plain = root_ + "/plain";
  DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::FileSystem::Default()->CreateDirIfMissing(plain, IOOptions(), nullptr).ok());
  EXPECT_TRUE(Write(plain + "/000900.log").ok() && Write(plain + "/CURRENT").ok());
  EXPECT_TRUE(fs_->DeleteFile(plain + "/CURRENT", IOOptions(), nullptr).ok());
  ASSERT_TRUE(DB::OpenForReadOnly(MakeOptions(), directory_, &opened).ok());
  delete opened;
  Options secondary = MakeOptions();
  secondary.max_open_files = -1;
  ASSERT_TRUE(DB::OpenAsSecondary(secondary, directory_, root_ + "/secondary", &opened).ok());
  delete opened;
  // A way out that the refusal names.
  stdfs::rename(Path("HYPERLOOP"), root_ + "/HYPERLOOP");
  EXPECT_TRUE(Write(Path("000900.log")).ok());
}

TEST_F(AroundTest, AnotherFileSystemObjectCannotWriteBesideTheOneThatHasItOpen) {
  Make();
  fs_ = MakeFileSystem(MakeStoreOptions());
  EXPECT_THAT(Write(Path("000900.log")).ToString(), HasSubstr("is not open here"));
}

TEST_F(AroundTest, ColumnFamiliesOfAReadOnlyHandle) {
  Make();
  Close();
  DB* opened = nullptr;
  ASSERT_TRUE(DB::OpenForReadOnly(MakeOptions(), directory_, &opened).ok());
  const std::unique_ptr<DB> reader(opened);
  rocksdb::ColumnFamilyHandle* family = nullptr;
  const Status made = reader->CreateColumnFamily(Options(), "lost", &family);
  EXPECT_THAT(made.ToString(), HasSubstr("holds a replicated database"));
  ExpectWhole();
}

TEST_F(AroundTest, BackupCannotBeRestoredOverAReplicatedDirectory) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "TSan sees what threads of RocksDB's backup engine copy, but not what orders them";
#endif
  Make();
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_TRUE(rocksdb::BackupEngine::Open(env_.get(),
                                          rocksdb::BackupEngineOptions(root_ + "/backup"), &engine)
                  .ok());
  const std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_TRUE(backup->CreateNewBackup(db_.get()).ok());
  Close();
  const Status restored = backup->RestoreDBFromLatestBackup(directory_, directory_);
  EXPECT_THAT(restored.ToString(), HasSubstr("holds a replicated database"));
  listed_files_lost_ = true;  // OPTIONS and IDENTITY, which RocksDB makes anew
  ExpectWhole();
}

// --- directories below the one that is open ---

class NamedListener : public rocksdb::EventListener {
 public:
  explicit NamedListener(const char* name) : name_(name) {}
  const char* Name() const override { return name_; }

 private:
  const char* const name_;
};

TEST_F(AroundTest, StackedBlobDbIsRefused) {
  for (const char* name : {"BlobDBListener", "BlobDBListenerGC"}) {
    Options options = MakeOptions();
    options.listeners.push_back(std::make_shared<NamedListener>(name));
    EXPECT_THAT(Open(options).ToString(),
                AllOf(HasSubstr("BlobDBOptions::blob_dir"), HasSubstr("enable_blob_files")));
  }
  Options options = MakeOptions();
  options.listeners.push_back(std::make_shared<NamedListener>("AnotherListener"));
  EXPECT_TRUE(Open(options).ok());
}

TEST_F(AroundTest, IntegratedBlobFilesAreListed) {
  Options options = MakeOptions();
  options.enable_blob_files = true;
  ASSERT_TRUE(Open(options).ok());
  Put("blob", std::string(5000, 'b'));
  ASSERT_TRUE(db_->Flush(rocksdb::FlushOptions()).ok());
  Close();
  ASSERT_EQ(LocalNames(".blob").size(), 1u);
  const std::string blob = LocalNames(".blob")[0];
  EXPECT_EQ(group_->LocalFiles().count(blob), 1u);
  stdfs::rename(Path(blob), root_ + "/" + blob);
  EXPECT_THAT(Open(options).ToString(), HasSubstr("1 (" + blob + ")")) << "it is needed, too";
  stdfs::rename(root_ + "/" + blob, Path(blob));
  ASSERT_TRUE(Open(options).ok());
  EXPECT_EQ(Get("blob"), std::string(5000, 'b'));
}

TEST_F(AroundTest, LogAndTableDirectoriesBelowAreRefused) {
  Options options = MakeOptions();
  options.wal_dir = Path("wal");
  EXPECT_THAT(Open(options).ToString(), HasSubstr("wal_dir=" + Path("wal")));
  options = MakeOptions();
  options.db_paths = {{Path("tables"), 1 << 20}};
  EXPECT_THAT(Open(options).ToString(), HasSubstr("db_paths=" + Path("tables")));
  options = MakeOptions();
  options.cf_paths = {{Path("tables"), 1 << 20}};
  EXPECT_THAT(Open(options).ToString(), HasSubstr("db_paths or cf_paths names " + Path("tables")));
}

TEST_F(AroundTest, CheckpointBelowIsAPlainCopy) {
  Make();
  const auto before = group_->LogFiles();
  rocksdb::Checkpoint* made = nullptr;
  ASSERT_TRUE(rocksdb::Checkpoint::Create(db_.get(), &made).ok());
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  const Status status = checkpoint->CreateCheckpoint(Path("checkpoint"), 1 << 30);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectNothingNewInGroup(before);
  EXPECT_THAT(InfoLogText(), HasSubstr("are not replicated (the first: " + Path("checkpoint")));
  ExpectWhole();
  DB* opened = nullptr;
  ASSERT_TRUE(DB::Open(Options(), Path("checkpoint"), &opened).ok());
  const std::unique_ptr<DB> copy(opened);
  std::string value;
  EXPECT_TRUE(copy->Get(ReadOptions(), "log", &value).ok());
}

TEST_F(AroundTest, BackupBelowIsAPlainCopy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "TSan sees what threads of RocksDB's backup engine copy, but not what orders them";
#endif
  Make();
  const auto before = group_->LogFiles();
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_TRUE(
      rocksdb::BackupEngine::Open(env_.get(), rocksdb::BackupEngineOptions(Path("backup")), &engine)
          .ok());
  const std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_TRUE(backup->CreateNewBackup(db_.get()).ok());
  ExpectNothingNewInGroup(before);
  ExpectWhole();
  EXPECT_TRUE(backup->RestoreDBFromLatestBackup(root_ + "/new", root_ + "/new").ok());
}

TEST_F(AroundTest, RepairMovesLogsOutOfTheGroup) {
  Make();
  Close();
  const Status repaired = rocksdb::RepairDB(directory_, MakeOptions());
  ASSERT_TRUE(repaired.ok()) << repaired.ToString();
  EXPECT_TRUE(stdfs::exists(Path("lost")));
  for (const auto& [name, content] : group_->LogFiles()) EXPECT_THAT(name, Not(HasSubstr("lost/")));
  ExpectWhole();
}

TEST_F(AroundTest, InfoLogsAndSecondariesBelowStayLocal) {
  Options options = MakeOptions();
  options.db_log_dir = Path("logs");
  stdfs::create_directories(directory_);
  ASSERT_TRUE(Open(options).ok());
  Put("table", "1");
  Put("log", "1");
  Options looking = MakeOptions();
  looking.max_open_files = -1;
  DB* opened = nullptr;
  const Status status = DB::OpenAsSecondary(looking, directory_, Path("secondary"), &opened);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const std::unique_ptr<DB> secondary(opened);
  for (const auto& [name, size] : group_->LocalFiles()) EXPECT_THAT(name, Not(HasSubstr("/")));
  for (const auto& [name, content] : group_->LogFiles()) EXPECT_THAT(name, Not(HasSubstr("/")));
}

TEST_F(AroundTest, AnotherDatabaseBelowNeedsAFileSystemOfItsOwn) {
  Make();
  DB* opened = nullptr;
  EXPECT_THAT(DB::Open(MakeOptions(), Path("other"), &opened).ToString(),
              HasSubstr("the group holds one database, " + directory_));
  Options plain;
  plain.create_if_missing = true;
  ASSERT_TRUE(DB::Open(plain, Path("other"), &opened).ok());
  delete opened;
  ExpectWhole();
}

}  // namespace
}  // namespace hyperloop::plugin::testing
