// Bound directories: databases of a program that knows nothing of groups.
#include "binding_file_system.h"

#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::DB;
using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::Options;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// directory_ is bound to group_, and other_ to other_group_. env_ is the program's Env.
class BindingFileSystemTest : public DatabaseTest {
 protected:
  void SetUp() override {
    DatabaseTest::SetUp();
    other_ = root_ + "/other";
    plain_ = root_ + "/plain";
    Bind(Text(directory_, "window=8") + ";" + Text(other_, "window=16"));
  }
  std::string Text(const std::string& directory, const std::string& options) const {
    return directory + "=" + FormatStoreUri(MakeStoreOptions()) + "&" + options;
  }
  // The program's file system from now on.
  void Bind(const std::string& text) {
    db_.reset();
    env_.reset();
    Bindings bindings;
    AddBindings(text, &bindings);
    const StoreOpener open_store = [this](const StoreOptions& with,
                                          std::shared_ptr<Log>) -> Result<std::unique_ptr<Store>> {
      if (unreachable_) return Unavailable("127.0.0.1:1 does not answer");
      return MakeFakeStore(with.window == 16 ? other_group_ : group_, with);
    };
    binding_ = std::make_shared<BindingFileSystem>(rocksdb::FileSystem::Default(),
                                                   std::move(bindings), open_store);
    env_ = rocksdb::NewCompositeEnv(binding_);
  }
  std::unique_ptr<DB> OpenAt(const std::string& directory) {
    return OpenAt(directory, MakeOptions());
  }
  std::unique_ptr<DB> OpenAt(const std::string& directory, const Options& options) {
    DB* db = nullptr;
    opened_ = DB::Open(options, directory, &db);
    return std::unique_ptr<DB>(db);
  }
  void ExpectRefused(const std::string& directory, const std::string& reason) {
    EXPECT_EQ(OpenAt(directory), nullptr);
    EXPECT_THAT(opened_.ToString(), HasSubstr(reason));
    EXPECT_FALSE(stdfs::exists(directory + "/CURRENT")) << "the database was made";
  }
  static void PutInto(DB& db, const std::string& key) {
    ASSERT_OK(db.Put(rocksdb::WriteOptions(), key, "1"));
  }
  static std::string GetFrom(DB& db, const std::string& key) {
    std::string value;
    const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), key, &value);
    return status.ok() ? value : status.ToString();
  }

  std::string other_, plain_;
  std::shared_ptr<FakeGroup> other_group_ = FakeGroup::Make();
  std::shared_ptr<BindingFileSystem> binding_;
  bool unreachable_ = false;
  rocksdb::Status opened_;
};

TEST_F(BindingFileSystemTest, EachDirectoryGoesToItsGroupAndTheRestStaysLocal) {
  const std::unique_ptr<DB> other = OpenAt(other_);
  ASSERT_OK(opened_);
  const std::unique_ptr<DB> plain = OpenAt(plain_);
  ASSERT_OK(opened_);
  ASSERT_OK(Open(MakeOptions()));
  Put("bound", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("bound too", "1");
  PutInto(*other, "other");
  PutInto(*plain, "plain");
  EXPECT_FALSE(stdfs::exists(plain_ + "/HYPERLOOP"));
  EXPECT_TRUE(other_group_->held());
  EXPECT_THAT(other_group_->ListedFiles(),
              Not(::testing::Contains(::testing::Key(HasSubstr(".sst")))));
  ExpectLocalEqualsGroup();
  const std::map<std::string, std::string> content = ContentFromGroup();
  EXPECT_EQ(content, (std::map<std::string, std::string>{{"bound", "1"}, {"bound too", "1"}}));
}

TEST_F(BindingFileSystemTest, OpensAgainInTheSameProgram) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(Open(MakeOptions()));
    Put(std::to_string(i), "1");
    Close();
    EXPECT_FALSE(group_->held());
  }
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("0") + Get("1"), "11");
}

TEST_F(BindingFileSystemTest, OtherSpellingsOfTheDirectoryAreBound) {
  stdfs::create_directories(plain_);
  stdfs::create_directories(directory_);
  stdfs::create_directory_symlink(directory_, root_ + "/link");
  int number = 0;
  for (const std::string& spelling :
       {root_ + "/link", directory_ + "/", root_ + "//db/.", plain_ + "/../db",
        root_ + "/link/../db", stdfs::relative(directory_).string()}) {
    SCOPED_TRACE(spelling);
    const std::unique_ptr<DB> db = OpenAt(spelling);
    ASSERT_OK(opened_);
    EXPECT_TRUE(group_->held());
    PutInto(*db, std::to_string(number++));
  }
  EXPECT_EQ(ContentFromGroup().size(), 6u);
  // The bound directory may itself be named by a link.
  Bind(Text(root_ + "/link", "window=8"));
  const std::unique_ptr<DB> db = OpenAt(directory_);
  ASSERT_OK(opened_);
  EXPECT_TRUE(group_->held());
}

TEST_F(BindingFileSystemTest, NamesThatOnlyBeginAlikeAreNotBound) {
  stdfs::create_directories(directory_);
  for (const std::string& directory : {directory_ + "2", directory_ + "/../db3", root_ + "/d"}) {
    const std::unique_ptr<DB> db = OpenAt(directory);
    ASSERT_OK(opened_) << directory;
    EXPECT_FALSE(group_->held()) << directory;
  }
}

TEST_F(BindingFileSystemTest, ADatabaseBelowABoundDirectory) {
  Bind(Text(root_ + "/service", "window=8") + ";" + Text(root_ + "/service/b", "window=16"));
  for (const char* name : {"a", "b"}) stdfs::create_directories(root_ + "/service/" + name);
  const std::unique_ptr<DB> a = OpenAt(root_ + "/service/a/db");
  ASSERT_OK(opened_);
  EXPECT_TRUE(group_->held());
  const std::unique_ptr<DB> b = OpenAt(root_ + "/service/b/db");
  ASSERT_OK(opened_);
  EXPECT_TRUE(other_group_->held()) << "the deepest directory counts";
  ExpectRefused(root_ + "/service/c", "the group holds one database");
}

TEST_F(BindingFileSystemTest, AWrongBindingIsTheErrorOfItsDirectory) {
  Bind(directory_ + "=hyperloop://127.0.0.1:1?windw=3;" + Text(other_, "window=16"));
  ExpectRefused(directory_, "HYPERLOOP_BIND for " + directory_);
  EXPECT_THAT(opened_.ToString(), HasSubstr("the nearest known one is \"window\""));
  DB* db = nullptr;
  EXPECT_THAT(DB::OpenForReadOnly(MakeOptions(), directory_, &db).ToString(), HasSubstr("window"));
  EXPECT_NE(OpenAt(other_), nullptr);
  EXPECT_NE(OpenAt(plain_), nullptr);
}

TEST_F(BindingFileSystemTest, AMalformedTextOpensNothing) {
  Bind(directory_ + ";" + Text(other_, "window=16"));
  for (const std::string& directory : {directory_, other_, plain_})
    ExpectRefused(directory, "HYPERLOOP_BIND: \"" + directory_ + "\": it must be DIR=URI");
  Options options = MakeOptions();
  ASSERT_OK(rocksdb::Env::Default()->NewLogger(root_ + "/log", &options.info_log));
  EXPECT_EQ(OpenAt(plain_, options), nullptr);
}

TEST_F(BindingFileSystemTest, AGroupOutOfReachRefusesToOpenAndIsTriedAgain) {
  unreachable_ = true;
  ExpectRefused(directory_, "127.0.0.1:1 does not answer");
  unreachable_ = false;
  EXPECT_OK(Open(MakeOptions()));
}

TEST_F(BindingFileSystemTest, ReadersTakeNothing) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Close();
  const uint64_t epoch = group_->epoch();
  unreachable_ = true;
  DB* opened = nullptr;
  ASSERT_OK(DB::OpenForReadOnly(MakeOptions(), directory_, &opened));
  const std::unique_ptr<DB> reader(opened);
  EXPECT_EQ(GetFrom(*reader, "a"), "1");
  Options options = MakeOptions();
  options.max_open_files = -1;
  ASSERT_OK(DB::OpenAsSecondary(options, directory_, plain_, &opened));
  const std::unique_ptr<DB> secondary(opened);
  EXPECT_EQ(GetFrom(*secondary, "a"), "1");
  EXPECT_EQ(group_->epoch(), epoch);
}

TEST_F(BindingFileSystemTest, AReplicatedDirectoryThatIsNotBoundIsNotOpened) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Close();
  Bind(Text(other_, "window=16"));
  EXPECT_FALSE(Open(MakeOptions()).ok());
  EXPECT_THAT(Open(MakeOptions()).ToString(),
              AllOf(HasSubstr(directory_ + " holds a replicated database"), HasSubstr(other_)));
}

// --- what crosses the boundary ---

TEST_F(BindingFileSystemTest, CheckpointsAndBackupsLeaveTheDirectory) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "TSan sees what threads of RocksDB's backup engine copy, but not what orders them";
#endif
  ASSERT_OK(Open(MakeOptions()));
  Put("table", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("log", "1");
  rocksdb::Checkpoint* made = nullptr;
  ASSERT_OK(rocksdb::Checkpoint::Create(db_.get(), &made));
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  ASSERT_OK(checkpoint->CreateCheckpoint(plain_));
  EXPECT_EQ(stdfs::hard_link_count(plain_ + "/" + LocalNames(".sst").at(0)), 2u);
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_OK(rocksdb::BackupEngine::Open(rocksdb::BackupEngineOptions(root_ + "/backup", env_.get()),
                                        env_.get(), &engine));
  const std::unique_ptr<rocksdb::BackupEngine> backups(engine);
  ASSERT_OK(backups->CreateNewBackup(db_.get()));
  ASSERT_OK(backups->RestoreDBFromLatestBackup(root_ + "/restored", root_ + "/restored"));
  for (const std::string& directory : {plain_, root_ + "/restored"}) {
    const std::unique_ptr<DB> copy = OpenAt(directory);
    ASSERT_OK(opened_) << directory;
    EXPECT_EQ(GetFrom(*copy, "table") + GetFrom(*copy, "log"), "11");
  }
  ExpectLocalEqualsGroup();
}

TEST_F(BindingFileSystemTest, NothingIsLinkedOrRenamedBetweenTwoGroups) {
  ASSERT_OK(Open(MakeOptions()));
  const std::unique_ptr<DB> other = OpenAt(other_);
  ASSERT_OK(opened_);
  WriteLocal(directory_ + "/file", "x");
  const std::string to = other_ + "/file";
  for (const auto& status :
       {binding_->LinkFile(directory_ + "/file", to, IOOptions(), nullptr),
        binding_->RenameFile(directory_ + "/file", to, IOOptions(), nullptr)}) {
    EXPECT_TRUE(status.IsNotSupported());
    EXPECT_THAT(status.ToString(), AllOf(HasSubstr("file and"), HasSubstr("copy the file")));
  }
  EXPECT_TRUE(stdfs::exists(directory_ + "/file"));
  EXPECT_FALSE(stdfs::exists(to));
}

TEST_F(BindingFileSystemTest, PathsThatEnterAndLeaveAreListedAndUnlisted) {
  ASSERT_OK(Open(MakeOptions()));
  stdfs::create_directories(plain_);
  WriteLocal(plain_ + "/999999.sst", "table");
  ASSERT_OK(binding_->RenameFile(plain_ + "/999999.sst", directory_ + "/999999.sst", IOOptions(),
                                 nullptr));
  EXPECT_EQ(group_->ListedFiles().at("999999.sst"), 5u);
  ASSERT_OK(binding_->RenameFile(directory_ + "/999999.sst", plain_ + "/999999.sst", IOOptions(),
                                 nullptr));
  EXPECT_EQ(group_->ListedFiles().count("999999.sst"), 0u);
}

// --- directories that a bound database has elsewhere ---

TEST_F(BindingFileSystemTest, ALogDirectoryElsewhereIsRefused) {
  const std::unique_ptr<DB> plain = OpenAt(plain_);
  Options options = MakeOptions();
  options.wal_dir = root_ + "/wal";
  EXPECT_EQ(OpenAt(directory_, options), nullptr);
  EXPECT_THAT(opened_.ToString(), HasSubstr("wal_dir=" + root_ + "/wal"));
  // A database that is not bound may have it there, also beside a bound one.
  ASSERT_OK(Open(MakeOptions()));
  const std::unique_ptr<DB> free = OpenAt(root_ + "/free", options);
  ASSERT_OK(opened_);
  for (int i = 0; i < 3; ++i) {
    PutInto(*free, "a");
    ASSERT_OK(free->Flush(rocksdb::FlushOptions()));
    Put("a", "1");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  }
}

TEST_F(BindingFileSystemTest, TableDirectoriesElsewhereAreRefused) {
  const std::unique_ptr<DB> plain = OpenAt(plain_);
  Options options = MakeOptions();
  options.db_paths = {{root_ + "/tables", 1 << 30}};
  EXPECT_EQ(OpenAt(directory_, options), nullptr);
  EXPECT_THAT(opened_.ToString(), HasSubstr("db_paths=" + root_ + "/tables"));
}

TEST_F(BindingFileSystemTest, TableDirectoriesOfANewColumnFamilyAreRefused) {
  ASSERT_OK(Open(MakeOptions()));
  rocksdb::ColumnFamilyOptions family_options;
  family_options.cf_paths = {{root_ + "/tables", 1 << 30}};
  rocksdb::ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(db_->CreateColumnFamily(family_options, "elsewhere", &family));
  ASSERT_OK(db_->Put(rocksdb::WriteOptions(), family, "a", "1"));
  EXPECT_THAT(db_->Flush(rocksdb::FlushOptions(), family).ToString(), HasSubstr("cf_paths names"));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
}

// Linking and renaming bring a file there as well as creating it does.
TEST_F(BindingFileSystemTest, NoTableEntersARefusedDirectory) {
  ASSERT_OK(Open(MakeOptions()));
  const std::string refused = root_ + "/tables";
  rocksdb::ColumnFamilyOptions family_options;
  family_options.cf_paths = {{refused, 1 << 30}};
  rocksdb::ColumnFamilyHandle* family = nullptr;
  ASSERT_OK(db_->CreateColumnFamily(family_options, "elsewhere", &family));
  rocksdb::SstFileWriter writer{rocksdb::EnvOptions(), Options()};
  ASSERT_OK(writer.Open(root_ + "/new.sst"));
  ASSERT_OK(writer.Put("a", "1"));
  ASSERT_OK(writer.Finish());
  rocksdb::IngestExternalFileOptions moving;
  moving.move_files = true;
  EXPECT_THAT(db_->IngestExternalFile(family, {root_ + "/new.sst"}, moving).ToString(),
              HasSubstr("cf_paths names"));
  const std::string listed = directory_ + "/000800.sst", there = refused + "/000900.sst";
  ASSERT_OK(binding_->LinkFile(root_ + "/new.sst", listed, IOOptions(), nullptr));
  for (const std::string& from : {root_ + "/new.sst", listed}) {
    EXPECT_THAT(binding_->LinkFile(from, there, IOOptions(), nullptr),
                StatusIs(rocksdb::Status::kNotSupported));
    EXPECT_THAT(binding_->RenameFile(from, there, IOOptions(), nullptr),
                StatusIs(rocksdb::Status::kNotSupported));
  }
  EXPECT_TRUE(stdfs::is_empty(refused));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
}

TEST_F(BindingFileSystemTest, AForkedChildMayOpenWhatItsParentHasNot) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan ends a child of a program with threads that starts one of its own";
#endif
  ASSERT_TRUE(binding_->FileExists(directory_, IOOptions(), nullptr).IsNotFound());
  const pid_t child = fork();
  if (child == 0) _exit(OpenAt(directory_) != nullptr && group_->held() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hyperloop::plugin::testing
