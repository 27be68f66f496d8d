// Other databases of the program that has a bound one open, with the same Env: RocksDB speaks of
// them in calls that do not say which database is meant.
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>

#include "binding_file_system.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace rocksdb {
// RocksDB has it for its own tests, in no header that is installed.
Env* NewChrootEnv(Env* base_env, const std::string& chroot_dir);
}  // namespace rocksdb

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::ColumnFamilyDescriptor;
using rocksdb::ColumnFamilyHandle;
using rocksdb::ColumnFamilyOptions;
using rocksdb::DB;
using rocksdb::FileOptions;
using rocksdb::FlushOptions;
using rocksdb::Options;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Way : uint8_t { kUri, kBinding };

// directory_ is replicated: env_ has the group's FileSystem, or one that binds the directory.
class SeveralDatabasesTest : public DatabaseTest, public ::testing::WithParamInterface<Way> {
 protected:
  void SetUp() override {
    DatabaseTest::SetUp();
    copy_ = root_ + "/copy";
    if (GetParam() == Way::kUri) return;
    Bindings bindings;
    AddBindings(directory_ + "=" + FormatStoreUri(MakeStoreOptions()), &bindings);
    env_ = rocksdb::NewCompositeEnv(std::make_shared<BindingFileSystem>(
        rocksdb::FileSystem::Default(), std::move(bindings),
        [this](const StoreOptions& with, std::shared_ptr<Log>) -> Result<std::unique_ptr<Store>> {
          return MakeFakeStore(group_, with);
        }));
  }
  void OpenAndCopy() {
    ASSERT_OK(Open(MakeOptions()));
    Put("table", "1");
    ASSERT_OK(db_->Flush(FlushOptions()));
    Put("log", "1");
    Copy(copy_);
  }
  void Copy(const std::string& to) {
    rocksdb::Checkpoint* made = nullptr;
    ASSERT_OK(rocksdb::Checkpoint::Create(db_.get(), &made));
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    ASSERT_OK(checkpoint->CreateCheckpoint(to));
  }
  std::unique_ptr<DB> Read(const std::string& directory, const Options& options) {
    DB* db = nullptr;
    const rocksdb::Status opened = DB::OpenForReadOnly(options, directory, &db);
    EXPECT_OK(opened);
    return std::unique_ptr<DB>(db);
  }
  static std::string GetFrom(DB& db, const std::string& key) {
    std::string value;
    const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), key, &value);
    return status.ok() ? value : status.ToString();
  }
  // Each flush makes a log and a table.
  void ExpectGoesOn() {
    for (int i = 0; i < 3; ++i) {
      Put("on" + std::to_string(i), "1");
      ASSERT_OK(db_->Flush(FlushOptions()));
    }
    ExpectLocalEqualsGroup();
  }
  // What creating the file says.
  std::string Create(const std::string& path) {
    stdfs::create_directories(stdfs::path(path).parent_path());
    std::unique_ptr<rocksdb::FSWritableFile> file;
    return env_->GetFileSystem()->NewWritableFile(path, FileOptions(), &file, nullptr).ToString();
  }
  ColumnFamilyHandle* AddFamilyElsewhere(const std::string& tables) {
    ColumnFamilyOptions options;
    options.cf_paths = {{tables, 1 << 30}};
    ColumnFamilyHandle* family = nullptr;
    const rocksdb::Status made = db_->CreateColumnFamily(options, "elsewhere", &family);
    EXPECT_OK(made);
    return family;
  }

  std::string copy_;
};

INSTANTIATE_TEST_SUITE_P(All, SeveralDatabasesTest, ::testing::Values(Way::kUri, Way::kBinding),
                         [](const auto& way) {
                           return way.param == Way::kUri ? "ByUri" : "ByBinding";
                         });

TEST_P(SeveralDatabasesTest, ACheckpointIsReadBesideTheOpenDatabase) {
  OpenAndCopy();
  {
    const std::unique_ptr<DB> reader = Read(copy_, MakeOptions());
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(GetFrom(*reader, "table") + GetFrom(*reader, "log"), "11");
    ExpectGoesOn();
  }
  ExpectGoesOn();
}

TEST_P(SeveralDatabasesTest, ACheckpointThatWasOpenBeforeTheDatabaseStaysSo) {
  OpenAndCopy();
  Close();
  const std::unique_ptr<DB> reader = Read(copy_, MakeOptions());
  ASSERT_OK(Open(MakeOptions()));
  ExpectGoesOn();
}

TEST_P(SeveralDatabasesTest, ReadersMayHaveTablesElsewhere) {
  OpenAndCopy();
  Options options = MakeOptions();
  options.db_paths = {{root_ + "/tables", 1 << 30}, {copy_, 1 << 30}};
  options.wal_dir = root_ + "/wal";
  options.max_open_files = -1;
  stdfs::create_directories(options.wal_dir);
  DB* opened = nullptr;
  // The copy's tables are not there; what counts is what RocksDB says before it finds that out.
  DB::OpenForReadOnly(options, copy_, &opened).PermitUncheckedError();
  delete opened;
  ExpectGoesOn();
  options = MakeOptions();
  options.max_open_files = -1;
  ASSERT_OK(DB::OpenAsSecondary(options, directory_, root_ + "/secondary", &opened));
  const std::unique_ptr<DB> secondary(opened);
  ExpectGoesOn();
  ASSERT_OK(secondary->TryCatchUpWithPrimary());
  EXPECT_EQ(GetFrom(*secondary, "on2"), "1");
}

TEST_P(SeveralDatabasesTest, AnotherDatabaseIsWrittenBesideTheBoundOne) {
  if (GetParam() == Way::kUri) GTEST_SKIP() << "by URI a FileSystem is for one database";
  OpenAndCopy();
  Options options = MakeOptions();
  options.wal_dir = root_ + "/wal";
  options.db_paths = {{copy_, 1 << 30}, {root_ + "/tables", 1 << 30}};
  DB* opened = nullptr;
  ASSERT_OK(DB::Open(options, copy_, &opened));
  const std::unique_ptr<DB> other(opened);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(other->Put(rocksdb::WriteOptions(), "other", "1"));
    ASSERT_OK(other->Flush(FlushOptions()));
    ColumnFamilyHandle* family = nullptr;
    ColumnFamilyOptions elsewhere;
    elsewhere.cf_paths = {{root_ + "/tables", 1 << 30}};
    ASSERT_OK(other->CreateColumnFamily(elsewhere, std::to_string(i), &family));
    ASSERT_OK(other->DestroyColumnFamilyHandle(family));
    ExpectGoesOn();
  }
}

// Whatever the thread did last with the bound database, a family of another one is not its own.
TEST_P(SeveralDatabasesTest, AnotherDatabaseThatWasOpenedBeforeTheBoundOneGrows) {
  if (GetParam() == Way::kUri) GTEST_SKIP() << "by URI a FileSystem is for one database";
  OpenAndCopy();
  Close();
  DB* opened = nullptr;
  ASSERT_OK(DB::Open(MakeOptions(), copy_, &opened));
  const std::unique_ptr<DB> other(opened);
  const auto expect_grows = [&](const std::string& name) {
    SCOPED_TRACE(name);
    ColumnFamilyHandle* family = nullptr;
    ASSERT_OK(other->CreateColumnFamily(ColumnFamilyOptions(), name, &family));
    ASSERT_OK(other->Put(rocksdb::WriteOptions(), family, "other", "1"));
    ASSERT_OK(other->Flush(FlushOptions(), family));
    ASSERT_OK(other->DestroyColumnFamilyHandle(family));
    ExpectGoesOn();
  };
  ASSERT_OK(Open(MakeOptions()));
  expect_grows("opened");
  ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(db_->CreateColumnFamily(ColumnFamilyOptions(), "own", &family));
  expect_grows("created");
  ASSERT_OK(db_->DropColumnFamily(family));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
  expect_grows("dropped");
}

// What is the bound database's own is refused as before, whatever else is open.
TEST_P(SeveralDatabasesTest, AFamilyElsewhereIsRefusedAndItsEndHeals) {
  OpenAndCopy();
  const std::unique_ptr<DB> reader = Read(copy_, MakeOptions());
  ColumnFamilyHandle* const family = AddFamilyElsewhere(root_ + "/tables");
  ASSERT_NE(family, nullptr);
  EXPECT_THAT(Create(root_ + "/tables/000900.sst"), HasSubstr("cf_paths names"));
  ASSERT_OK(db_->DropColumnFamily(family));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
  EXPECT_THAT(Create(root_ + "/tables/000900.sst"), Not(HasSubstr("cf_paths names")));
  ExpectGoesOn();
}

TEST_P(SeveralDatabasesTest, AFamilyElsewhereIsRefusedWhenItIsOpened) {
  Options options = MakeOptions();
  options.cf_paths = {{root_ + "/tables", 1 << 30}};
  EXPECT_THAT(Open(options).ToString(), HasSubstr("cf_paths names " + root_ + "/tables"));
  EXPECT_OK(Open(MakeOptions()));
}

// A FileSystem above ours may show options whose paths are not ours.
TEST_P(SeveralDatabasesTest, ALogElsewhereIsRefusedThoughNoOptionWasShown) {
  stdfs::create_directories(directory_);
  const std::shared_ptr<rocksdb::FileSystem> fs = env_->GetFileSystem();
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs->LockFile(directory_ + "/LOCK", rocksdb::IOOptions(), &lock, nullptr));
  EXPECT_THAT(Create(root_ + "/000007.log"),
              HasSubstr("would be the log of the database in " + directory_));
  EXPECT_THAT(Create(directory_ + "/000007.log"), HasSubstr("OK"));
  EXPECT_THAT(Create(root_ + "/000007.log"), HasSubstr("OK"));
  ASSERT_OK(fs->UnlockFile(lock, rocksdb::IOOptions(), nullptr));
}

// What RocksDB says there names other paths than there are.
TEST_P(SeveralDatabasesTest, BehindAChrootACopyIsReadAndTheBoundDatabaseIsRefused) {
  OpenAndCopy();
  const std::unique_ptr<rocksdb::Env> chroot(rocksdb::NewChrootEnv(env_.get(), root_));
  ASSERT_NE(chroot, nullptr);
  Options options = MakeOptions();
  options.env = chroot.get();
  {
    const std::unique_ptr<DB> reader = Read(copy_.substr(root_.size()), options);
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(GetFrom(*reader, "table") + GetFrom(*reader, "log"), "11");
    ExpectGoesOn();
  }
  ExpectGoesOn();
  Close();
  const std::string below = directory_.substr(root_.size());
  DB* opened = nullptr;
  EXPECT_THAT(DB::Open(options, below, &opened).ToString(),
              HasSubstr("=" + below + " is not the database directory " + directory_));
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("table") + Get("log"), "11");
  ExpectGoesOn();
}

TEST_P(SeveralDatabasesTest, WhatIsSaidOfTheGroupGoesToItsOwnLog) {
  OpenAndCopy();
  { const std::unique_ptr<DB> reader = Read(copy_, MakeOptions()); }
  std::shared_ptr<rocksdb::Logger> other;
  ASSERT_OK(env_->NewLogger(copy_ + "/LOG", &other));
  ::testing::internal::CaptureStderr();
  Close();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(InfoLogText(), HasSubstr("released the group"));
  EXPECT_THAT(ReadLocal(copy_ + "/LOG"), Not(HasSubstr("hyperloop")));
}

TEST_P(SeveralDatabasesTest, AnSstFileManagerOfTwoDatabasesDeletesInBoth) {
  Options options = MakeOptions();
  options.sst_file_manager.reset(rocksdb::NewSstFileManager(env_.get()));
  ASSERT_OK(Open(options));
  Put("a", "1");
  ASSERT_OK(db_->Flush(FlushOptions()));
  Copy(copy_);
  const std::unique_ptr<DB> reader = Read(copy_, options);
  ExpectGoesOn();
  ASSERT_OK(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  ExpectLocalEqualsGroup();
  EXPECT_EQ(GetFrom(*reader, "a"), "1");
}

}  // namespace
}  // namespace hyperloop::plugin::testing
