// What of a bound directory is on the local disk when the primary's machine loses its power.
#include <filesystem>
#include <mutex>
#include <set>

#include "support/eventually.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// The names of files with bytes that were written and not fsynced.
struct Unsynced {
  std::mutex mutex;
  std::set<std::string> names;
};

class TrackedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  TrackedFile(std::unique_ptr<rocksdb::FSWritableFile>&& file, Unsynced* unsynced, std::string name)
      : FSWritableFileOwnerWrapper(std::move(file)), unsynced_(unsynced), name_(std::move(name)) {}
  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) override {
    Mark(true);
    return target()->Append(data, options, dbg);
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& info, IODebugContext* dbg) override {
    Mark(true);
    return target()->Append(data, options, info, dbg);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
    Mark(false);
    return target()->Sync(options, dbg);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
    Mark(false);
    return target()->Fsync(options, dbg);
  }

 private:
  void Mark(bool unsynced) {
    const std::lock_guard<std::mutex> lock(unsynced_->mutex);
    unsynced ? (void)unsynced_->names.insert(name_) : (void)unsynced_->names.erase(name_);
  }
  Unsynced* const unsynced_;
  const std::string name_;
};

class TrackedDisk final : public rocksdb::FileSystemWrapper {
 public:
  TrackedDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "tracked"; }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           IODebugContext* dbg) override {
    return Track(path, target()->NewWritableFile(path, options, file, dbg), file);
  }
  IOStatus ReopenWritableFile(const std::string& path, const FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* dbg) override {
    return Track(path, target()->ReopenWritableFile(path, options, file, dbg), file);
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* dbg) override {
    const std::lock_guard<std::mutex> lock(unsynced_.mutex);
    unsynced_.names.erase(BaseOf(to));
    if (unsynced_.names.erase(BaseOf(from)) != 0) unsynced_.names.insert(BaseOf(to));
    return target()->RenameFile(from, to, options, dbg);
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options,
                      IODebugContext* dbg) override {
    const std::lock_guard<std::mutex> lock(unsynced_.mutex);
    unsynced_.names.erase(BaseOf(path));
    return target()->DeleteFile(path, options, dbg);
  }
  std::set<std::string> unsynced() {
    const std::lock_guard<std::mutex> lock(unsynced_.mutex);
    return unsynced_.names;
  }

 private:
  IOStatus Track(const std::string& path, IOStatus opened,
                 std::unique_ptr<rocksdb::FSWritableFile>* file) {
    if (opened.ok())
      *file = std::make_unique<TrackedFile>(std::move(*file), &unsynced_, BaseOf(path));
    return opened;
  }
  Unsynced unsynced_;
};

class LocalDiskTest : public DatabaseTest {
 protected:
  void SetUp() override {
    DatabaseTest::SetUp();
    env_.reset();
    fs_ = MakeFileSystem(MakeStoreOptions(), disk_);
    env_ = rocksdb::NewCompositeEnv(fs_);
  }
  // Logs are a cache, whose end may be lost. DB::ListColumnFamilies reads the others before
  // anything is locked, and nobody can set them right before it does.
  void ExpectOnDisk() {
    EXPECT_THAT(disk_->unsynced(), Not(Contains(HasSubstr("MANIFEST"))));
    EXPECT_THAT(disk_->unsynced(), Not(Contains("CURRENT")));
  }
  const std::shared_ptr<TrackedDisk> disk_ = std::make_shared<TrackedDisk>();
};

TEST_F(LocalDiskTest, ManifestAndCurrentAreThereWhateverLocalSyncSays) {
  ASSERT_FALSE(MakeStoreOptions().local_sync);
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Open(MakeOptions()));
    ExpectOnDisk();
    Put("a", "1");
    EXPECT_THAT(disk_->unsynced(), Contains(HasSubstr(".log")));
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    ExpectOnDisk();
    Close();
  }
}

TEST_F(LocalDiskTest, ManifestAndCurrentThatAnOpeningWritesAreThereToo) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Close();
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    if (IsManifest(name) || name == "CURRENT" || name.ends_with(".log"))
      WriteLocal(entry.path(), "");
  }
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", IOOptions(), &lock, nullptr));
  ExpectLocalEqualsGroup();
  ExpectOnDisk();
  ASSERT_OK(fs_->UnlockFile(lock, IOOptions(), nullptr));
}

// --- what is read of an unclean directory before it is locked ---

class UncleanTest : public DatabaseTest {
 protected:
  using Families = std::vector<std::string>;

  // Leaves a directory whose primary was killed, and a group with a family.
  void MakeUnclean() {
    ASSERT_OK(Open(MakeOptions()));
    rocksdb::ColumnFamilyHandle* family = nullptr;
    ASSERT_OK(db_->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), "one", &family));
    ASSERT_OK(db_->Put(rocksdb::WriteOptions(), family, "a", "1"));
    ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
    for (const std::string& name : LocalNames("")) {
      if (IsManifest(name)) manifest_ = name;
    }
    Crash();
  }
  std::string Path(const std::string& name) { return directory_ + "/" + name; }
  rocksdb::Status List(Families* families) {
    rocksdb::DBOptions options;
    options.env = env_.get();
    return rocksdb::DB::ListColumnFamilies(options, directory_, families);
  }
  void ExpectOpensWithAllFamilies() {
    Families names;
    ASSERT_OK(List(&names));
    EXPECT_EQ(names, (Families{"default", "one"}));
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const std::string& name : names) families.push_back({name, {}});
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::Open(MakeOptions(), directory_, families, &handles, &db));
    db_.reset(db);
    std::string value;
    EXPECT_OK(db->Get(rocksdb::ReadOptions(), handles.back(), "a", &value));
    for (rocksdb::ColumnFamilyHandle* handle : handles)
      ASSERT_OK(db->DestroyColumnFamilyHandle(handle));
  }
  // The value of "a" as a reader finds it, or why it finds none.
  std::string ReadUnlocked(bool secondary) {
    const std::vector<rocksdb::ColumnFamilyDescriptor> families = {{"default", {}}, {"one", {}}};
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* opened = nullptr;
    rocksdb::Options options = MakeOptions();
    options.max_open_files = -1;  // as a secondary wants it
    rocksdb::Status status =
        secondary ? rocksdb::DB::OpenAsSecondary(options, directory_, root_ + "/secondary",
                                                 families, &handles, &opened)
                  : rocksdb::DB::OpenForReadOnly(options, directory_, families, &handles, &opened);
    const std::unique_ptr<rocksdb::DB> db(opened);
    std::string value;
    if (status.ok()) status = db->Get(rocksdb::ReadOptions(), handles.back(), "a", &value);
    for (rocksdb::ColumnFamilyHandle* handle : handles)
      EXPECT_OK(db->DestroyColumnFamilyHandle(handle));
    return status.ok() ? value : status.ToString();
  }
  // From now on the group does not answer.
  void LoseGroup() {
    env_.reset();
    fs_ = std::make_shared<HyperloopFileSystem>(
        rocksdb::FileSystem::Default(), MakeStoreOptions(),
        [this](const StoreOptions&, std::shared_ptr<Log>) -> Result<std::unique_ptr<Store>> {
          ++asked_;
          return Unavailable("127.0.0.1:1 does not answer");
        });
    env_ = rocksdb::NewCompositeEnv(fs_);
  }

  std::string manifest_;
  int asked_ = 0;
};

TEST_F(UncleanTest, ColumnFamiliesAreThoseOfTheGroup) {
  MakeUnclean();
  const std::string whole = ReadLocal(Path(manifest_));
  const std::vector<std::pair<std::string, std::string>> damages = {
      {"CURRENT", ""},
      {"CURRENT", std::string(16, '\0')},
      {"CURRENT", "MANIFEST-0"},
      {"CURRENT", "MANIFEST-999999\n"},
      {manifest_, ""},
      {manifest_, std::string(whole.size(), '\0')},
      {manifest_, whole.substr(0, whole.size() / 2)},
  };
  for (const auto& [name, bytes] : damages) {
    SCOPED_TRACE(name + " of " + std::to_string(bytes.size()) + " B");
    WriteLocal(Path(name), bytes);
    Families families;
    EXPECT_OK(List(&families));
    EXPECT_EQ(families, (Families{"default", "one"}));
    EXPECT_FALSE(group_->held());
    WriteLocal(Path("CURRENT"), manifest_ + "\n");
    WriteLocal(Path(manifest_), whole);
  }
  std::filesystem::remove(Path("CURRENT"));
  ExpectOpensWithAllFamilies();
}

// Logs are fsynced only with local_sync, and a name may be lost as well as bytes.
TEST_F(UncleanTest, AReaderGetsTheLogsOfTheGroup) {
  MakeUnclean();
  const std::vector<std::string> logs = LocalNames(".log");
  ASSERT_FALSE(logs.empty());
  std::map<std::string, std::string> whole;
  for (const std::string& log : logs) whole[log] = ReadLocal(Path(log));
  using Damage = std::function<void(const std::string&, std::string)>;
  const std::map<std::string, Damage> damages = {
      {"empty", [](const std::string& path, std::string) { WriteLocal(path, ""); }},
      {"cut", [](const std::string& path,
                 std::string bytes) { WriteLocal(path, bytes.substr(0, bytes.size() / 2)); }},
      {"zeros", [](const std::string& path,
                   std::string bytes) { WriteLocal(path, std::string(bytes.size(), '\0')); }},
      {"longer",
       [](const std::string& path, std::string bytes) { WriteLocal(path, bytes + bytes); }},
      {"gone", [](const std::string& path, std::string) { std::filesystem::remove(path); }},
      {"unreadable",
       [](const std::string& path, std::string) {
         std::filesystem::remove(path);
         std::filesystem::create_symlink(path, path);
       }},
  };
  for (const auto& [how, damage] : damages) {
    SCOPED_TRACE(how);
    for (const std::string& log : logs) damage(Path(log), whole[log]);
    for (const bool secondary : {false, true}) {
      fs_ = MakeFileSystem(MakeStoreOptions());  // nothing is kept of what the last one read
      env_ = rocksdb::NewCompositeEnv(fs_);
      ::testing::internal::CaptureStderr();
      EXPECT_EQ(ReadUnlocked(secondary), "1");
      EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
      EXPECT_FALSE(group_->held());
    }
    for (const std::string& log : logs) {
      std::filesystem::remove(Path(log));
      WriteLocal(Path(log), whole[log]);
    }
  }
}

TEST_F(UncleanTest, LogsThatAreNotTheGroupsAreSaidToBeOld) {
  MakeUnclean();
  LoseGroup();
  for (const std::string& log : LocalNames(".log")) std::filesystem::remove(Path(log));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ReadUnlocked(false), "NotFound: ");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("what is read of it may be older than what the group holds"));
}

TEST_F(UncleanTest, AGroupOutOfReachIsSaid) {
  MakeUnclean();
  LoseGroup();
  Families families;
  ::testing::internal::CaptureStderr();
  EXPECT_OK(List(&families));
  EXPECT_OK(List(&families));
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(shown, HasSubstr("may be older than what the group holds"));
  WriteLocal(Path("CURRENT"), "");
  EXPECT_THAT(List(&families).ToString(),
              ::testing::AllOf(HasSubstr(directory_ + " was not closed"),
                               HasSubstr("127.0.0.1:1 does not answer")));
}

TEST_F(UncleanTest, ADirectoryThatWasClosedIsReadAsItIs) {
  MakeUnclean();
  ExpectOpensWithAllFamilies();
  Close();
  LoseGroup();
  Families families;
  EXPECT_OK(List(&families));
  EXPECT_EQ(families, (Families{"default", "one"}));
  EXPECT_EQ(asked_, 0);
}

// The group answers, so it is not said that it cannot be asked. A program that makes a database
// where there is none tells that by this error.
TEST_F(UncleanTest, AFirstCreationThatWasCutShortLeftNoDatabase) {
  rocksdb::FileLock* lock = nullptr;
  std::filesystem::create_directories(directory_);
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", IOOptions(), &lock, nullptr));
  Crash();
  ASSERT_TRUE(fs_->IsUnclean(directory_));
  Families families;
  ::testing::internal::CaptureStderr();
  const rocksdb::Status none = List(&families);
  EXPECT_TRUE(none.IsPathNotFound()) << none.ToString();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  EXPECT_OK(rocksdb::FileSystem::Default()->UnlockFile(lock, IOOptions(), nullptr));
}

TEST_F(UncleanTest, AFileThatTheGroupDoesNotHoldIsTheDirectorysOrNone) {
  MakeUnclean();
  WriteLocal(Path("CURRENT"), "");
  WriteLocal(Path("MANIFEST-000998"), "old");
  std::unique_ptr<rocksdb::FSSequentialFile> file;
  ::testing::internal::CaptureStderr();
  const IOStatus none = fs_->NewSequentialFile(Path("MANIFEST-000999"), {}, &file, nullptr);
  EXPECT_TRUE(none.IsPathNotFound()) << none.ToString();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::testing::internal::CaptureStderr();
  EXPECT_OK(fs_->NewSequentialFile(Path("MANIFEST-000998"), {}, &file, nullptr));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("MANIFEST-000998"));
}

// After a failover the former primary's directory has what was, and another machine what is.
TEST_F(UncleanTest, OldNamesAreSaidToBeOldWhileAnotherPrimaryLives) {
  MakeUnclean();
  StoreOptions options = MakeStoreOptions();
  options.restore = options.rebind = true;
  const std::shared_ptr<HyperloopFileSystem> other = MakeFileSystem(options);
  std::filesystem::create_directories(root_ + "/other");
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(other->LockFile(root_ + "/other/LOCK", IOOptions(), &lock, nullptr));
  Families families;
  ::testing::internal::CaptureStderr();
  EXPECT_OK(List(&families));
  EXPECT_OK(List(&families));
  const std::string shown = ::testing::internal::GetCapturedStderr();
  const size_t said = shown.find("may be older than what the group holds");
  ASSERT_NE(said, std::string::npos) << shown;
  EXPECT_THAT(shown.substr(said), HasSubstr("a primary that is alive holds the group"));
  EXPECT_EQ(shown.find("may be older", said + 1), std::string::npos) << shown;
  ASSERT_OK(other->UnlockFile(lock, IOOptions(), nullptr));
}

TEST_F(UncleanTest, OldNamesAreSaidOfEachDirectory) {
  MakeUnclean();
  const std::string first = directory_, second = root_ + "/second";
  std::filesystem::copy(first, second, std::filesystem::copy_options::recursive);
  LoseGroup();
  Families families;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    for (const std::string& each : {first, second}) {
      directory_ = each;
      EXPECT_OK(List(&families));
    }
  }
  const std::string shown = ::testing::internal::GetCapturedStderr();
  for (const std::string& each : {first, second})
    EXPECT_THAT(shown, HasSubstr("the database in " + each + " was not closed"));
}

TEST_F(UncleanTest, AReaderAsksTheGroupOnce) {
  MakeUnclean();
  const auto read = [this] {
    rocksdb::DB* db = nullptr;
    ASSERT_OK(rocksdb::DB::OpenForReadOnly(MakeOptions(), directory_, &db));
    delete db;
  };
  const auto calls = [this] { return group_->CallsOf("judge") + asked_; };
  // What is kept is kept for a time, which may pass between two readers of a slow machine.
  const auto second_asks_nobody = [&] {
    read();
    const int before = calls();
    read();
    return calls() == before;
  };
  EXPECT_TRUE(test::Eventually(second_asks_nobody));
  const int asked = calls();
  EXPECT_TRUE(test::Eventually([&] {
    read();
    return calls() > asked;
  }));
  LoseGroup();
  EXPECT_TRUE(test::Eventually(second_asks_nobody))
      << "nor does one that was not answered ask again";
  EXPECT_GT(asked_, 0);
}

TEST_F(UncleanTest, WhatWasReadIsForgottenWhenTheDirectoryIsLocked) {
  MakeUnclean();
  ExpectOpensWithAllFamilies();
  rocksdb::ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(db_->CreateColumnFamily(rocksdb::ColumnFamilyOptions(), "two", &family));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
  Close();
  WriteLocal(Path("HYPERLOOP.open"), "");
  ASSERT_TRUE(fs_->IsUnclean(directory_));
  Families families;
  ASSERT_OK(List(&families));
  EXPECT_EQ(families, (Families{"default", "one", "two"}));
}

}  // namespace
}  // namespace hyperloop::plugin::testing
