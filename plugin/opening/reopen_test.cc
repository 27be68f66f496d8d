// Opens after a kill, with damaged local files, on the wrong group, and where a primary lives.
#include <rocksdb/env.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "pairing_file.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::Options;
using rocksdb::Status;
using rocksdb::WriteOptions;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ReopenTest : public DatabaseTest {
 protected:
  // A database with logs only, killed.
  void MakeAndCrash() {
    ASSERT_OK(Open(MakeOptions()));
    for (int i = 0; i < 200; ++i) Put("key" + std::to_string(i), std::string(1000, 'v'));
    Crash();
    logs_ = LocalNames(".log");
    manifests_.clear();
    for (const std::string& name : LocalNames("")) {
      if (name.starts_with("MANIFEST-")) manifests_.push_back(name);
    }
    ASSERT_THAT(logs_, SizeIs(1));
  }
  void ExpectWhole() {
    Status status = Open(MakeOptions());
    ASSERT_OK(status);
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(Get("key" + std::to_string(i)), std::string(1000, 'v')) << i;
    ExpectLocalEqualsGroup();
  }
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  // Opens it once with other options of the store; nothing stays open.
  Status OpenWith(const std::function<void(StoreOptions*)>& change) {
    StoreOptions store_options = MakeStoreOptions();
    change(&store_options);
    const auto file_system = MakeFileSystem(store_options);
    const auto env = rocksdb::NewCompositeEnv(file_system);
    Options options = MakeOptions();
    options.env = env.get();
    const Status status = Open(options);
    Close();
    return status;
  }

  // --- for a forked child, where a failed expectation would not be seen
  static bool IsFenced(std::unique_ptr<rocksdb::FSWritableFile> file) {
    return Fenced("file", {file->Append("child", kIo, nullptr), file->Truncate(0, kIo, nullptr),
                           file->Sync(kIo, nullptr), file->Close(kIo, nullptr)});
  }
  bool NamesAreFenced() {
    const rocksdb::FileOptions options;
    std::unique_ptr<rocksdb::FSWritableFile> file;
    std::shared_ptr<rocksdb::Logger> logger;
    bool all = Fenced("log", {fs_->NewWritableFile(Path("000801.log"), options, &file, nullptr),
                              fs_->DeleteFile(Path("000800.log"), kIo, nullptr),
                              fs_->NewLogger(Path("LOG"), kIo, &logger, nullptr)});
    for (const char* name : {"000802.sst", "LOG.old.1"})
      all &= Fenced(name, {fs_->NewWritableFile(Path(name), options, &file, nullptr),
                           fs_->ReopenWritableFile(Path(name), options, &file, nullptr),
                           fs_->Truncate(Path(name), 0, kIo, nullptr),
                           fs_->DeleteFile(Path(name), kIo, nullptr),
                           fs_->LinkFile(root_ + "/elsewhere", Path(name), kIo, nullptr),
                           fs_->RenameFile(root_ + "/elsewhere", Path(name), kIo, nullptr)});
    return all;
  }

  std::vector<std::string> logs_, manifests_;

 private:
  static inline const rocksdb::IOOptions kIo;
  static bool Fenced(const char* what, const std::vector<rocksdb::IOStatus>& calls) {
    bool all = true;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].IsIOFenced()) continue;
      std::fprintf(stderr, "%s, call %zu: %s\n", what, i, calls[i].ToString().c_str());
      all = false;
    }
    return all;
  }
};

TEST_F(ReopenTest, AfterAKill) {
  MakeAndCrash();
  ExpectWhole();
}

TEST_F(ReopenTest, LogOfZerosOfTheRightLength) {
  MakeAndCrash();
  WriteLocal(Path(logs_[0]), std::string(ReadLocal(Path(logs_[0])).size(), '\0'));
  ExpectWhole();
  EXPECT_THAT(InfoLogText(), HasSubstr("set to the group's content: 1 (" + logs_[0] + ")"));
}

TEST_F(ReopenTest, LogWithOneWrongByte) {
  MakeAndCrash();
  std::string bytes = ReadLocal(Path(logs_[0]));
  bytes[bytes.size() / 2] ^= 1;
  WriteLocal(Path(logs_[0]), bytes);
  ExpectWhole();
  EXPECT_EQ(ReadLocal(Path("hyperloop-set-aside/epoch-2/" + logs_[0])), bytes);
}

TEST_F(ReopenTest, ShorterAndLongerAndMissingFiles) {
  MakeAndCrash();
  std::string log = ReadLocal(Path(logs_[0]));
  WriteLocal(Path(logs_[0]), log.substr(0, log.size() / 3));
  const std::string manifest = ReadLocal(Path(manifests_[0]));
  WriteLocal(Path(manifests_[0]), manifest + "a longer tail");
  std::filesystem::remove(Path("CURRENT"));
  WriteLocal(Path("000999.log"), log);       // the group has no such log
  WriteLocal(Path("MANIFEST-000999"), "x");  // nor that
  ExpectWhole();
  std::string text = InfoLogText();
  EXPECT_THAT(text, HasSubstr("cut to what the group holds: 1 (" + manifests_[0]));
  EXPECT_THAT(text, HasSubstr("removed that the group does not hold: 2"));
  // None of it is lost.
  const std::string aside = Path("hyperloop-set-aside/epoch-2/");
  EXPECT_THAT(text, HasSubstr("is kept in " + Path("hyperloop-set-aside/epoch-2")));
  EXPECT_EQ(ReadLocal(aside + "000999.log"), log);
  EXPECT_EQ(ReadLocal(aside + "MANIFEST-000999"), "x");
  EXPECT_EQ(ReadLocal(aside + manifests_[0] + ".from-" + std::to_string(manifest.size())),
            "a longer tail");
  EXPECT_FALSE(std::filesystem::exists(aside + logs_[0])) << "a part of the group's needs no copy";
}

TEST_F(ReopenTest, EverythingLocalButThePairingLost) {
  MakeAndCrash();
  for (const std::string& name : LocalNames("")) {
    if (name != "HYPERLOOP" && name != "archive") std::filesystem::remove_all(Path(name));
  }
  listed_files_lost_ = true;
  ExpectWhole();
}

TEST_F(ReopenTest, CheckpointKeepsItsBytesWhenTheLocalLogIsRewritten) {
  MakeAndCrash();
  std::filesystem::create_hard_link(Path(logs_[0]), root_ + "/kept.log");
  std::string damaged = ReadLocal(Path(logs_[0])) + "tail";
  WriteLocal(Path(logs_[0]), damaged);
  ExpectWhole();
  EXPECT_EQ(ReadLocal(root_ + "/kept.log"), damaged);
}

TEST_F(ReopenTest, EmptyDirectoryAndGroupWithDatabaseNeedsRestore) {
  MakeAndCrash();
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("restore=true"));
  // The group is still bound to the directory that is gone.
  EXPECT_THAT(OpenWith([](StoreOptions* with) { with->restore = true; }).ToString(),
              HasSubstr("rebind=true"));
  EXPECT_FALSE(group_->held());
  StoreOptions with_both = MakeStoreOptions();
  with_both.restore = with_both.rebind = true;
  fs_ = MakeFileSystem(with_both);
  env_ = rocksdb::NewCompositeEnv(fs_);
  std::filesystem::remove_all(directory_);
  listed_files_lost_ = true;
  ExpectWhole();
}

TEST_F(ReopenTest, ForeignPairingIsRefusedAndChangesNothing) {
  MakeAndCrash();
  rocksdb::FileSystem& local = *rocksdb::FileSystem::Default();
  ASSERT_OK(WritePairing(local, directory_, {"another-group", "another-database"}, "", true));
  WriteLocal(Path("000999.log"), "x");
  auto before = group_->LogFiles();
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("belongs to group another-group"));
  EXPECT_EQ(group_->LogFiles(), before);
  EXPECT_EQ(ReadLocal(Path("000999.log")), "x");
  EXPECT_FALSE(group_->held());
}

TEST_F(ReopenTest, DamagedPairingIsRefused) {
  MakeAndCrash();
  std::string text = ReadLocal(Path("HYPERLOOP"));
  for (std::string damaged :
       {std::string(), text.substr(0, text.size() - 1), text + "x", std::string(2000, 'x')}) {
    WriteLocal(Path("HYPERLOOP"), damaged);
    EXPECT_THAT(Open(MakeOptions()).ToString(),
                HasSubstr("is damaged, or of a later version; put the file back"));
  }
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 4;
    WriteLocal(Path("HYPERLOOP"), damaged);
    PairingFile file;
    EXPECT_THAT(ReadPairing(*rocksdb::FileSystem::Default(), directory_, &file),
                StatusIs(Code::kCorruption))
        << i;
  }
  WriteLocal(Path("HYPERLOOP"), text);
  ExpectWhole();
}

TEST_F(ReopenTest, DirectoryOfAnUnreplicatedDatabaseIsRefusedAndKept) {
  rocksdb::DB* plain = nullptr;
  Options options;
  options.create_if_missing = true;
  ASSERT_OK(rocksdb::DB::Open(options, directory_, &plain));
  ASSERT_OK(plain->Put(WriteOptions(), "precious", "1"));
  delete plain;
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("the group never saw"));
  std::filesystem::remove(Path("CURRENT"));  // its log still holds data
  EXPECT_THAT(Open(MakeOptions()).ToString(), HasSubstr("the group never saw"));
  EXPECT_THAT(LocalNames(".log"), SizeIs(1));
}

TEST_F(ReopenTest, SecondPrimaryIsRefusedUnlessItTakesOver) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  auto second = MakeFileSystem(MakeStoreOptions());
  auto second_env = rocksdb::NewCompositeEnv(second);
  Options options = MakeOptions();
  options.env = second_env.get();
  rocksdb::DB* opened = nullptr;
  Status status = rocksdb::DB::Open(options, root_ + "/second", &opened);
  EXPECT_THAT(status, StatusIs(rocksdb::Status::kBusy));
  EXPECT_THAT(status.ToString(), HasSubstr("a primary that is alive holds the group"));
  Put("b", "2");  // the first primary did not notice the attempt
  EXPECT_EQ(group_->epoch(), 1u);
}

TEST_F(ReopenTest, SecondDatabaseOnOneFileSystemIsRefused) {
  ASSERT_OK(Open(MakeOptions()));
  rocksdb::DB* opened = nullptr;
  Status status = rocksdb::DB::Open(MakeOptions(), root_ + "/second", &opened);
  EXPECT_THAT(status, StatusIs(rocksdb::Status::kNotSupported));
  EXPECT_THAT(status.ToString(), HasSubstr("the group holds one database, " + directory_));
  Put("a", "1");
  Close();
  // The refusal did not keep the second directory locked, nor the first one bound.
  std::filesystem::remove_all(directory_);
  std::filesystem::remove_all(root_ + "/second");
  group_ = FakeGroup::Make();
  fs_ = MakeFileSystem(MakeStoreOptions());
  env_ = rocksdb::NewCompositeEnv(fs_);
  directory_ = root_ + "/second";
  EXPECT_OK(Open(MakeOptions()));
}

TEST_F(ReopenTest, DirectoriesElsewhereAreRefusedByName) {
  Options options = MakeOptions();
  options.wal_dir = root_ + "/wal";
  EXPECT_THAT(Open(options).ToString(),
              HasSubstr("wal_dir=" + root_ + "/wal is not the database directory"));
  options = MakeOptions();
  options.db_paths = {{root_ + "/tables", 1 << 20}};
  EXPECT_THAT(Open(options).ToString(), HasSubstr("db_paths=" + root_ + "/tables"));
  options = MakeOptions();
  options.cf_paths = {{root_ + "/tables", 1 << 20}};
  EXPECT_THAT(Open(options).ToString(),
              HasSubstr("db_paths or cf_paths names " + root_ + "/tables"));
  // Other spellings of the directory itself are fine, and a refusal does not outlive its open.
  options = MakeOptions();
  options.wal_dir = root_ + "/./db/";
  options.db_paths = {{directory_, 1 << 30}};
  Status status = Open(options);
  ASSERT_OK(status);
  Put("a", "1");
  ExpectLocalEqualsGroup();
}

// What leads back to the directory is the directory: the logs and tables there are replicated.
TEST_F(ReopenTest, AWayBackToTheDirectoryIsTheDirectory) {
  std::filesystem::create_directories(directory_);
  std::filesystem::create_directory_symlink(".", Path("self"));
  for (const std::string& spelled :
       {directory_ + "/.", directory_ + "/./", Path("self"), Path("self/self"), Path("../db")}) {
    SCOPED_TRACE(spelled);
    Options options = MakeOptions();
    options.wal_dir = spelled;
    options.db_paths = {{spelled, 1 << 30}};
    Reopen(options);
    Put("log of " + spelled, "1");
    ExpectLocalEqualsGroup();
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    Put("another log of " + spelled, "1");
    ExpectLocalEqualsGroup();
    for (const std::string& name : LocalNames(".sst"))
      EXPECT_EQ(group_->ListedFiles().count(name), 1u) << name;
    Reopen(MakeOptions());
    EXPECT_EQ(Get("another log of " + spelled), "1");
  }
}

// A group that an earlier release left like that: no replica was sent the table.
TEST_F(ReopenTest, ATableThatOnlyTheDirectoryHasIsListedByTheNextOpening) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  ASSERT_EQ(LocalNames(".sst").size(), 1u);
  const std::string table = LocalNames(".sst")[0];
  Close();
  group_->Unlist(table);
  WriteLocal(Path("000999.sst"), "a table that no MANIFEST names");
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(group_->ListedFiles().count(table), 1u);
  EXPECT_EQ(group_->ListedFiles().count("000999.sst"), 0u);
  EXPECT_THAT(InfoLogText(), HasSubstr("sent to the replicas: 1 (" + table + ")"));
  EXPECT_EQ(Get("a"), "1");
}

TEST_F(ReopenTest, FailedOpenGivesTheGroupBack) {
  Options options = MakeOptions();
  options.create_if_missing = false;
  EXPECT_THAT(Open(options), StatusIs(rocksdb::Status::kInvalidArgument));
  EXPECT_FALSE(group_->held());
  EXPECT_FALSE(std::filesystem::exists(Path("HYPERLOOP")));
  EXPECT_OK(Open(MakeOptions()));
}

TEST_F(ReopenTest, ForkedChildCannotWriteAndDisturbsNothing) {
  std::filesystem::create_directories(directory_);
  const rocksdb::IOOptions io;
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(Path("LOCK"), io, &lock, nullptr));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000800.log"), rocksdb::FileOptions(), &file, nullptr));
  std::unique_ptr<rocksdb::FSWritableFile> table;
  ASSERT_OK(fs_->NewWritableFile(Path("000803.sst"), rocksdb::FileOptions(), &table, nullptr));
  for (rocksdb::FSWritableFile* each : {file.get(), table.get()}) {
    each->SetPreallocationBlockSize(1 << 20);
    each->PrepareWrite(0, 1, io, nullptr);  // closing it now cuts it to its size
  }
  int written[2];
  ASSERT_EQ(pipe(written), 0);
  pid_t child = fork();
  if (child == 0) {
    char go;
    close(written[1]);
    bool right = read(written[0], &go, 1) == 0;  // the parent has appended to both
    right = right && IsFenced(std::move(file)) && IsFenced(std::move(table)) && NamesAreFenced();
    // This must neither release the group nor unpair the directory.
    _exit(fs_->UnlockFile(lock, io, nullptr).ok() && right ? 0 : 1);
  }
  EXPECT_OK(file->Append("parent", io, nullptr));
  EXPECT_OK(table->Append("parent's table", io, nullptr));
  close(written[0]);
  close(written[1]);
  int result = 0;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
  EXPECT_TRUE(std::filesystem::exists(Path("HYPERLOOP")));
  ASSERT_OK(file->Append(", again", io, nullptr));
  ASSERT_OK(table->Append(", again", io, nullptr));
  ASSERT_OK(table->Close(io, nullptr));
  std::string text;
  ASSERT_OK(rocksdb::ReadFileToString(rocksdb::Env::Default(), Path("000803.sst"), &text));
  EXPECT_EQ(text, "parent's table, again");
  ASSERT_OK(fs_->DeleteFile(Path("000803.sst"), io, nullptr));
  ExpectLocalEqualsGroup();
  EXPECT_OK(fs_->UnlockFile(lock, io, nullptr));
  EXPECT_FALSE(std::filesystem::exists(Path("HYPERLOOP"))) << "the group holds no database";
}

}  // namespace
}  // namespace hyperloop::plugin::testing
