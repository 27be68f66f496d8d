// Two cases besides the logs of an open directory: the same directory while nobody has it open, and
// the directories below it. These tests check the table in docs/rocksdb-plugin.md.
#include <fcntl.h>
#include <rocksdb/convenience.h>
#include <rocksdb/listener.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "support/status_matchers.h"
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
    ASSERT_OK(Open(MakeOptions()));
    Put("table", "1");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    Put("log", "1");
  }
  void ExpectWhole() {
    Close();
    ASSERT_OK(Open(MakeOptions()));
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

// RocksDB puts the info log away before it tries to lock the directory.
TEST_F(AroundTest, ARefusedSecondOpeningLeavesTheInfoLogAlone) {
  Make();
  Close();
  WriteLocal(Path("LOG"), "of the process that serves");
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const std::string lock_path = Path("LOCK");
  const pid_t holder = fork();
  if (holder == 0) {
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    if (fcntl(fd, F_SETLK, &lock) != 0 || write(told[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(told[0], &byte, 1), 1);
  Options options = MakeOptions();
  for (const size_t size_to_roll : {0, 1 << 20}) {
    options.max_log_file_size = size_to_roll;
    EXPECT_THAT(Open(options).ToString(), HasSubstr("LOCK"));
    EXPECT_EQ(InfoLogText(), "of the process that serves");
  }
  std::shared_ptr<rocksdb::Logger> logger;
  EXPECT_THAT(fs_->NewLogger(Path("LOG"), IOOptions(), &logger, nullptr).ToString(),
              HasSubstr("process " + std::to_string(holder)));
  EXPECT_EQ(InfoLogText(), "of the process that serves");
  kill(holder, SIGKILL);
  ASSERT_EQ(waitpid(holder, nullptr, 0), holder);
  for (const int end : told) close(end);
  ExpectWhole();
  EXPECT_THAT(InfoLogText(), HasSubstr("took group"));
}

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
  EXPECT_OK(Write(Path("LOG")));
  EXPECT_OK(Write(Path("IDENTITY")));
  EXPECT_OK(Write(Path("000901.sst"))) << "a new table harms nobody";
  EXPECT_OK(fs_->DeleteFile(Path("LOG"), IOOptions(), nullptr));
  ExpectWhole();
}

TEST_F(AroundTest, DirectoriesThatAreNotReplicatedAreFree) {
  Make();
  Close();
  const std::string plain = root_ + "/plain";
  DB* opened = nullptr;
  ASSERT_OK(rocksdb::FileSystem::Default()->CreateDirIfMissing(plain, IOOptions(), nullptr));
  EXPECT_OK(Write(plain + "/000900.log"));
  EXPECT_OK(Write(plain + "/CURRENT"));
  EXPECT_OK(fs_->DeleteFile(plain + "/CURRENT", IOOptions(), nullptr));
  ASSERT_OK(DB::OpenForReadOnly(MakeOptions(), directory_, &opened));
  delete opened;
  Options secondary = MakeOptions();
  secondary.max_open_files = -1;
  ASSERT_OK(DB::OpenAsSecondary(secondary, directory_, root_ + "/secondary", &opened));
  delete opened;
  // A way out that the refusal names.
  stdfs::rename(Path("HYPERLOOP"), root_ + "/HYPERLOOP");
  EXPECT_OK(Write(Path("000900.log")));
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
  ASSERT_OK(DB::OpenForReadOnly(MakeOptions(), directory_, &opened));
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
  ASSERT_OK(rocksdb::BackupEngine::Open(env_.get(), rocksdb::BackupEngineOptions(root_ + "/backup"),
                                        &engine));
  const std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_OK(backup->CreateNewBackup(db_.get()));
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
  EXPECT_OK(Open(options));
}

TEST_F(AroundTest, IntegratedBlobFilesAreListed) {
  Options options = MakeOptions();
  options.enable_blob_files = true;
  ASSERT_OK(Open(options));
  Put("blob", std::string(5000, 'b'));
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Close();
  ASSERT_EQ(LocalNames(".blob").size(), 1u);
  const std::string blob = LocalNames(".blob")[0];
  EXPECT_EQ(group_->ListedFiles().count(blob), 1u);
  stdfs::rename(Path(blob), root_ + "/" + blob);
  EXPECT_THAT(Open(options).ToString(), HasSubstr("1 (" + blob + ")")) << "it is needed, too";
  stdfs::rename(root_ + "/" + blob, Path(blob));
  ASSERT_OK(Open(options));
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
  ASSERT_OK(rocksdb::Checkpoint::Create(db_.get(), &made));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  ASSERT_OK(checkpoint->CreateCheckpoint(Path("checkpoint"), 1 << 30));
  ExpectNothingNewInGroup(before);
  EXPECT_THAT(InfoLogText(), HasSubstr("are not replicated (the first: " + Path("checkpoint")));
  ExpectWhole();
  DB* opened = nullptr;
  ASSERT_OK(DB::Open(Options(), Path("checkpoint"), &opened));
  const std::unique_ptr<DB> copy(opened);
  std::string value;
  EXPECT_OK(copy->Get(ReadOptions(), "log", &value));
}

TEST_F(AroundTest, BackupBelowIsAPlainCopy) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "TSan sees what threads of RocksDB's backup engine copy, but not what orders them";
#endif
  Make();
  const auto before = group_->LogFiles();
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_OK(rocksdb::BackupEngine::Open(env_.get(), rocksdb::BackupEngineOptions(Path("backup")),
                                        &engine));
  const std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_OK(backup->CreateNewBackup(db_.get()));
  ExpectNothingNewInGroup(before);
  ExpectWhole();
  EXPECT_OK(backup->RestoreDBFromLatestBackup(root_ + "/new", root_ + "/new"));
}

TEST_F(AroundTest, RepairMovesLogsOutOfTheGroup) {
  Make();
  Close();
  ASSERT_OK(rocksdb::RepairDB(directory_, MakeOptions()));
  EXPECT_TRUE(stdfs::exists(Path("lost")));
  for (const auto& [name, content] : group_->LogFiles()) EXPECT_THAT(name, Not(HasSubstr("lost/")));
  ExpectWhole();
}

TEST_F(AroundTest, InfoLogsAndSecondariesBelowStayLocal) {
  Options options = MakeOptions();
  options.db_log_dir = Path("logs");
  stdfs::create_directories(directory_);
  ASSERT_OK(Open(options));
  Put("table", "1");
  Put("log", "1");
  Options looking = MakeOptions();
  looking.max_open_files = -1;
  DB* opened = nullptr;
  ASSERT_OK(DB::OpenAsSecondary(looking, directory_, Path("secondary"), &opened));
  const std::unique_ptr<DB> secondary(opened);
  for (const auto& [name, size] : group_->ListedFiles()) EXPECT_THAT(name, Not(HasSubstr("/")));
  for (const auto& [name, content] : group_->LogFiles()) EXPECT_THAT(name, Not(HasSubstr("/")));
}

TEST_F(AroundTest, AnotherDatabaseBelowNeedsAFileSystemOfItsOwn) {
  Make();
  DB* opened = nullptr;
  EXPECT_THAT(DB::Open(MakeOptions(), Path("other"), &opened).ToString(),
              HasSubstr("the group holds one database, " + directory_));
  Options plain;
  plain.create_if_missing = true;
  ASSERT_OK(DB::Open(plain, Path("other"), &opened));
  delete opened;
  ExpectWhole();
}

}  // namespace
}  // namespace hyperloop::plugin::testing
