// RocksDB on a HyperloopFileSystem whose group is in memory: the ordinary use of a database.
#include "file_system.h"

#include <rocksdb/convenience.h>
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/backup_engine.h>
#include <rocksdb/utilities/checkpoint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::DB;
using rocksdb::Options;
using rocksdb::ReadOptions;
using rocksdb::WriteOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// While one lives, it is called before each fsync of the code that is linked into this program,
// with the file's path. False makes the fsync fail.
class FsyncHook {
 public:
  explicit FsyncHook(std::function<bool(const std::string& path)> call) { now = std::move(call); }
  ~FsyncHook() { now = nullptr; }
  FsyncHook(const FsyncHook&) = delete;
  FsyncHook& operator=(const FsyncHook&) = delete;

  static inline std::function<bool(const std::string& path)> now;
};

std::string Key(int i) { return "key" + std::to_string(100000 + i); }

using FileSystemTest = DatabaseTest;

TEST_F(FileSystemTest, OpenPutCloseReopen) {
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_TRUE(group_->held());
  for (int i = 0; i < 1000; ++i) Put(Key(i), std::string(100, 'v'));
  ExpectLocalEqualsGroup();
  Reopen(MakeOptions());
  EXPECT_EQ(group_->epoch(), 2u);
  ExpectLocalEqualsGroup();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Get(Key(i)), std::string(100, 'v'));
  Close();
  EXPECT_FALSE(group_->held());
  ExpectLocalEqualsGroup();
  EXPECT_EQ(ContentFromGroup().size(), 1000u);
}

TEST_F(FileSystemTest, EveryPutIsInTheGroupWhenItReturnsWithoutSync) {
  ASSERT_OK(Open(MakeOptions()));
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(db_->Put(WriteOptions(), Key(i), "v"));
    if (i % 10 == 0) {
      ASSERT_EQ(ContentFromGroup().size(), static_cast<size_t>(i + 1));
    }
  }
}

TEST_F(FileSystemTest, LargeValuesAndColumnFamiliesAndFlushes) {
  Options options = MakeOptions();
  options.write_buffer_size = 256 << 10;
  ASSERT_OK(Open(options));
  rocksdb::ColumnFamilyHandle* other = nullptr;
  ASSERT_OK(db_->CreateColumnFamily(options, "other", &other));
  for (int i = 0; i < 400; ++i) {
    Put(Key(i), std::string(3000, static_cast<char>('a' + i % 26)));
    ASSERT_OK(db_->Put(WriteOptions(), other, Key(i), "x"));
  }
  Put("large", std::string(3 << 20, 'L'));
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions(), other));
  ASSERT_OK(db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
  ASSERT_OK(db_->DestroyColumnFamilyHandle(other));
  EXPECT_EQ(Get("large"), std::string(3 << 20, 'L'));
  Close();
  ExpectLocalEqualsGroup();
  EXPECT_THAT(LocalNames(".sst"), Not(IsEmpty()));
  for (const std::string& table : LocalNames(".sst"))
    EXPECT_EQ(group_->ListedFiles().count(table), 1u) << table;
  EXPECT_EQ(group_->ListedFiles().count("IDENTITY"), 1u);
}

TEST_F(FileSystemTest, TwoReopensWithoutFlushKeepTheLog) {
  Options options = MakeOptions();
  options.avoid_flush_during_recovery = true;
  options.avoid_flush_during_shutdown = true;
  ASSERT_OK(Open(options));
  Put("a", "1");
  Reopen(options);  // reopens and truncates the last WAL
  Put("b", "2");
  Reopen(options);
  ExpectLocalEqualsGroup();
  EXPECT_EQ(Get("a") + Get("b"), "12");
  EXPECT_THAT(LocalNames(".sst"), IsEmpty());
}

TEST_F(FileSystemTest, DestroyThenFreshDatabase) {
  ASSERT_OK(Open(MakeOptions()));
  Put("old", "1");
  Close();
  rocksdb::Status destroyed = rocksdb::DestroyDB(directory_, MakeOptions());
  ASSERT_OK(destroyed);
  EXPECT_THAT(group_->LogFiles(), IsEmpty());
  EXPECT_THAT(group_->ListedFiles(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory_))
      << "something is left: " << LocalNames("").front();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_THAT(Get("old"), HasSubstr("NotFound"));
  Put("new", "2");
  ExpectLocalEqualsGroup();
}

TEST_F(FileSystemTest, DestroyAfterCrashSeesWhatOnlyTheGroupHad) {
  ASSERT_OK(Open(MakeOptions()));
  Put("old", "1");
  Crash();
  // The process was killed after the group and before the directory had a new log.
  auto store = MakeFakeStore(group_, MakeStoreOptions());
  TakeResult taken;
  Pairing pairing = group_->pairing();
  ASSERT_OK(store->Take({directory_, false, pairing}, &taken));
  ASSERT_OK(store->Create("000099.log"));
  store.reset();
  rocksdb::Status destroyed = rocksdb::DestroyDB(directory_, MakeOptions());
  ASSERT_OK(destroyed);
  EXPECT_THAT(group_->LogFiles(), IsEmpty());
  rocksdb::Status opened = Open(MakeOptions());
  ASSERT_OK(opened);
  EXPECT_THAT(Get("old"), HasSubstr("NotFound"));
}

TEST_F(FileSystemTest, DestroyDoesNotStumbleOverFilesThatReconcilingRemoved) {
  ASSERT_OK(Open(MakeOptions()));
  Close();
  WriteLocal(directory_ + "/000077.log", "only here");
  rocksdb::Status destroyed = rocksdb::DestroyDB(directory_, MakeOptions());
  EXPECT_OK(destroyed);
  EXPECT_THAT(LocalNames(""), ::testing::ElementsAre("hyperloop-set-aside"));
  EXPECT_EQ(ReadLocal(directory_ + "/hyperloop-set-aside/epoch-2/000077.log"), "only here");
  ASSERT_OK(Open(MakeOptions()));
  Put("new", "1");
}

TEST_F(FileSystemTest, CheckpointAndBackupElsewhereAreNotReplicated) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP()
      << "TSan sees what threads of RocksDB's backup engine copy, but not what orders them";
#endif
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("b", "2");
  auto names = group_->LogFiles();

  rocksdb::Checkpoint* made = nullptr;
  ASSERT_OK(rocksdb::Checkpoint::Create(db_.get(), &made));
  std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  rocksdb::Status status = checkpoint->CreateCheckpoint(root_ + "/checkpoint", 1 << 30);
  ASSERT_OK(status);
  rocksdb::BackupEngine* engine = nullptr;
  ASSERT_OK(rocksdb::BackupEngine::Open(env_.get(), rocksdb::BackupEngineOptions(root_ + "/backup"),
                                        &engine));
  std::unique_ptr<rocksdb::BackupEngine> backup(engine);
  ASSERT_OK(backup->CreateNewBackup(db_.get()));

  ExpectNothingNewInGroup(names);
  EXPECT_THAT(InfoLogText(), HasSubstr("are not replicated (the first: " + root_ + "/checkpoint"));
  DB* copy = nullptr;
  ASSERT_OK(DB::Open(Options(), root_ + "/checkpoint", &copy));
  std::unique_ptr<DB> guard(copy);
  std::string value;
  EXPECT_OK(copy->Get(ReadOptions(), "b", &value));
  EXPECT_EQ(value, "2");
}

TEST_F(FileSystemTest, ArchivedLogsMoveWithinTheGroup) {
  Options options = MakeOptions();
  options.WAL_ttl_seconds = 3600;
  ASSERT_OK(Open(options));
  for (int round = 0; round < 3; ++round) {
    Put(Key(round), "v");
    ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  }
  Reopen(options);
  ExpectLocalEqualsGroup();
  bool archived = false;
  for (auto& [name, content] : group_->LogFiles()) archived |= name.starts_with("archive/");
  EXPECT_TRUE(archived);
}

TEST_F(FileSystemTest, ManualWalFlushIsSaidToWeaken) {
  Options options = MakeOptions();
  options.manual_wal_flush = true;
  ASSERT_OK(Open(options));
  ASSERT_OK(db_->Put(WriteOptions(), "a", "1"));
  EXPECT_EQ(ContentFromGroup().count("a"), 0u);
  ASSERT_OK(db_->FlushWAL(false));
  EXPECT_EQ(ContentFromGroup().count("a"), 1u);
  ASSERT_OK(db_->Put(WriteOptions(), "b", "1"));
  ASSERT_OK(db_->SyncWAL());
  ASSERT_OK(db_->FlushWAL(true));
  EXPECT_EQ(ContentFromGroup().count("b"), 1u);
  EXPECT_THAT(InfoLogText(), HasSubstr("manual_wal_flush is set"));
}

// How often the log of a database says `text`.
int CountOf(const std::string& text, const std::string& log) {
  int count = 0;
  for (size_t at = 0; (at = log.find(text, at)) != std::string::npos; at += text.size()) ++count;
  return count;
}

// The log says what RocksDB does not do by itself with such options.
TEST_F(FileSystemTest, OptionsThatKeepRocksDbFromResumingAreSaidOnce) {
  Options options = MakeOptions();
  options.paranoid_checks = false;
  options.wal_compression = rocksdb::kZSTD;
  ASSERT_OK(Open(options));
  Put("a", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));  // another log
  EXPECT_EQ(CountOf("paranoid_checks is off", InfoLogText()), 1);
  EXPECT_EQ(CountOf("wal_compression is set", InfoLogText()), 1);
  TearDown();
  SetUp();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(CountOf("paranoid_checks is off", InfoLogText()), 0);
  EXPECT_EQ(CountOf("wal_compression is set", InfoLogText()), 0);
}

// A manager of files that was made for another Env deletes them where the plugin does not see it.
TEST_F(FileSystemTest, LogsThatAreDeletedPastThePluginAreSaidOnce) {
  const std::string warning = "is in the group, and something else than the plugin deleted it";
  for (const bool own : {true, false}) {
    TearDown();
    SetUp();
    Options options = MakeOptions();
    options.sst_file_manager.reset(
        rocksdb::NewSstFileManager(own ? options.env : rocksdb::Env::Default()));
    ASSERT_OK(Open(options));
    for (int i = 0; i < 4; ++i) {
      Put(std::to_string(i), "1");
      ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    }
    EXPECT_EQ(CountOf(warning, InfoLogText()), own ? 0 : 1);
    Close();
    listed_files_lost_ = true;
  }
}

TEST_F(FileSystemTest, AManifestBeyondItsRoomInTheGroupIsSaidOnce) {
  struct Case {
    uint64_t extents;
    uint64_t room;
  };
  for (const Case& each : {Case{8, 4 << 20}, Case{1024, 64 << 20}, Case{1 << 20, 128 << 20}}) {
    for (const uint64_t excess : {0, 1}) {
      SCOPED_TRACE(std::to_string(each.extents) + " extents, " + std::to_string(excess));
      TearDown();
      SetUp();
      group_->SetExtents(each.extents);
      Options options = MakeOptions();
      options.max_manifest_file_size = each.room + excess;
      ASSERT_OK(Open(options));
      Put("a", "1");
      ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));  // another log
      const std::string warning = "set max_manifest_file_size to " + std::to_string(each.room / 2) +
                                  ": " + std::to_string(each.room + excess) + " is beyond the " +
                                  std::to_string(each.room) +
                                  " B that the group keeps for the MANIFEST, which would grow";
      const std::string log = InfoLogText();
      EXPECT_EQ(CountOf(warning, log), static_cast<int>(excess));
      EXPECT_EQ(CountOf("that the group keeps for the MANIFEST", log), static_cast<int>(excess));
    }
  }
}

// RocksDB's default is beyond the room of most groups.
TEST_F(FileSystemTest, WithTheDefaultOnlyAManifestThatOutgrewItsRoomIsSaid) {
  group_->SetExtents(8);
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(CountOf("max_manifest_file_size to", InfoLogText()), 0);
  for (char name = 'a'; name < 'd'; ++name) {
    rocksdb::ColumnFamilyHandle* family = nullptr;
    ASSERT_OK(db_->CreateColumnFamily({}, std::string(2 << 20, name), &family));
    ASSERT_OK(db_->DropColumnFamily(family));
    ASSERT_OK(db_->DestroyColumnFamilyHandle(family));
  }
  Close();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(CountOf("set max_manifest_file_size to 2097152: ", InfoLogText()), 1);
  EXPECT_EQ(CountOf("which has grown into the room of the logs", InfoLogText()), 1);
  Close();
  ASSERT_OK(Open(MakeOptions()));  // the one before made a new MANIFEST
  EXPECT_EQ(CountOf("max_manifest_file_size to", InfoLogText()), 0);
}

TEST_F(FileSystemTest, LogSaysWhatWasTakenAndWhatWeakensIt) {
  group_->SetExtents(8);
  StoreOptions store_options = MakeStoreOptions();
  store_options.ack = AckMode::kSync;
  group_->SetMedia(rnic::Media::kRam);  // detected: the option says auto
  fs_ = MakeFileSystem(store_options);
  env_ = rocksdb::NewCompositeEnv(fs_);
  ASSERT_OK(Open(MakeOptions()));
  std::string text = InfoLogText();
  EXPECT_THAT(text, HasSubstr("took group fake-group at epoch 1"));
  EXPECT_THAT(text, HasSubstr("listed replicas 127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3;"));
  EXPECT_THAT(text, HasSubstr("ack=sync: only a Put with sync=true"));
  EXPECT_THAT(text, HasSubstr("media=ram"));
  EXPECT_THAT(text, HasSubstr("data area of 8 MiB is smaller than two logs of 70 MiB"));
}

TEST_F(FileSystemTest, IngestedTablesAreListed) {
  ASSERT_OK(Open(MakeOptions()));
  rocksdb::SstFileWriter writer{rocksdb::EnvOptions(), Options()};
  ASSERT_OK(writer.Open(root_ + "/outside.sst"));
  ASSERT_OK(writer.Put("ingested", "1"));
  ASSERT_OK(writer.Finish());
  rocksdb::IngestExternalFileOptions ingest;
  ingest.move_files = true;  // LinkFile, Reopen, Sync
  ASSERT_OK(db_->IngestExternalFile({root_ + "/outside.sst"}, ingest));
  ASSERT_EQ(LocalNames(".sst").size(), 1u);
  EXPECT_EQ(group_->ListedFiles().count(LocalNames(".sst")[0]), 1u);
  ExpectLocalEqualsGroup();
}

// RocksDB copies the table, and does not look at what closing the copy returns. The MANIFEST must
// not name a table that no replica is sent.
TEST_F(FileSystemTest, ATableWhoseListingFailedIsListedBeforeTheManifestNamesIt) {
  ASSERT_OK(Open(MakeOptions()));
  const auto ingest = [&](const std::string& key) {
    const std::string path = root_ + "/" + key + ".sst";
    rocksdb::SstFileWriter writer{rocksdb::EnvOptions(), Options()};
    EXPECT_OK(writer.Open(path));
    EXPECT_OK(writer.Put(key, "1"));
    EXPECT_OK(writer.Finish());
    rocksdb::IngestExternalFileOptions options;
    options.write_global_seqno = false;  // which would list the table once more
    return db_->IngestExternalFile({path}, options);
  };
  group_->Inject({"list", Code::kNoSpace, false, 0});
  ASSERT_OK(ingest("a"));
  EXPECT_FALSE(group_->ForgetFaults());
  ASSERT_EQ(LocalNames(".sst").size(), 1u);
  EXPECT_EQ(group_->ListedFiles().count(LocalNames(".sst")[0]), 1u);
  ExpectLocalEqualsGroup();
  // It still cannot be listed: the MANIFEST may not name it, and the program hears of it.
  for (int i = 0; i < 2; ++i) group_->Inject({"list", Code::kNoSpace, false, 0});
  EXPECT_THAT(ingest("b"), StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_FALSE(group_->ForgetFaults());
}

// Calls `when_read` once, before a file is opened for reading.
class Watched final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  static const char* kClassName() { return "Watched"; }
  const char* Name() const override { return kClassName(); }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override {
    if (no_bytes) return rocksdb::IOStatus::IOError("injected");
    rocksdb::IOStatus opened = target()->NewRandomAccessFile(path, options, file, dbg);
    if (const auto call = std::exchange(when_read, nullptr)) call();
    return opened;
  }
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions& options,
                                uint64_t* size, rocksdb::IODebugContext* dbg) override {
    if (no_sizes) return rocksdb::IOStatus::IOError("injected");
    return target()->GetFileSize(path, options, size, dbg);
  }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* dbg) override {
    std::unique_ptr<rocksdb::FSWritableFile> made;
    rocksdb::IOStatus opened = target()->NewWritableFile(path, options, &made, dbg);
    if (opened.ok()) file->reset(new Written(std::move(made), this));
    return opened;
  }
  std::function<void()> when_read;
  bool no_bytes = false, no_sizes = false;      // they cannot be read now
  bool not_closed = false, not_synced = false;  // closing or syncing a file fails now

 private:
  class Written : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    Written(std::unique_ptr<rocksdb::FSWritableFile>&& file, const Watched* watched)
        : FSWritableFileOwnerWrapper(std::move(file)), watched_(watched) {}
    rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                            rocksdb::IODebugContext* dbg) override {
      if (watched_->not_synced) return rocksdb::IOStatus::IOError("injected");
      return target()->Fsync(options, dbg);
    }
    rocksdb::IOStatus Close(const rocksdb::IOOptions& options,
                            rocksdb::IODebugContext* dbg) override {
      const rocksdb::IOStatus closed = target()->Close(options, dbg);
      return watched_->not_closed ? rocksdb::IOStatus::IOError("injected") : closed;
    }

   private:
    const Watched* const watched_;
  };
};

// Whoever wrote the table may not have fsynced it. RocksDB fsyncs what it ingests, but not the
// tables of a column family that it imports.
TEST_F(FileSystemTest, ATableThatIsLinkedOrRenamedIsFsyncedBeforeItIsListed) {
  fs_ = MakeFileSystem(MakeStoreOptions());
  std::filesystem::create_directories(directory_);
  const rocksdb::IOOptions io;
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", io, &lock, nullptr));
  std::unique_ptr<rocksdb::FSWritableFile> manifest;
  ASSERT_OK(fs_->NewWritableFile(directory_ + "/MANIFEST-000804", rocksdb::FileOptions(), &manifest,
                                 nullptr));
  const std::string outside = root_ + "/outside";
  const auto make_table = [&] {
    WriteLocal(outside, "table");
    std::filesystem::permissions(outside, std::filesystem::perms::owner_read);
  };
  bool fails = false;
  std::vector<std::string> synced;
  const FsyncHook hook([&](const std::string& path) {
    if (!path.ends_with(".sst")) return true;
    const std::string name = std::filesystem::path(path).filename();
    EXPECT_EQ(group_->ListedFiles().count(name), 0u) << name;
    if (!fails) synced.push_back(name);
    return !fails;
  });
  make_table();
  EXPECT_OK(fs_->LinkFile(outside, directory_ + "/000801.sst", io, nullptr));
  EXPECT_OK(fs_->RenameFile(outside, directory_ + "/000802.sst", io, nullptr));
  EXPECT_THAT(synced, ElementsAre("000801.sst", "000802.sst"));

  // It is listed when that has succeeded, before the MANIFEST names it.
  make_table();
  fails = true;
  EXPECT_THAT(fs_->LinkFile(outside, directory_ + "/000803.sst", io, nullptr),
              StatusIs(rocksdb::Status::kIOError));
  EXPECT_THAT(manifest->Append("record", io, nullptr), StatusIs(rocksdb::Status::kIOError));
  EXPECT_EQ(group_->ListedFiles().count("000803.sst"), 0u);
  fails = false;
  manifest.reset();
  ASSERT_OK(fs_->NewWritableFile(directory_ + "/MANIFEST-000805", rocksdb::FileOptions(), &manifest,
                                 nullptr));
  EXPECT_OK(manifest->Append("record", io, nullptr));
  EXPECT_THAT(synced, ElementsAre("000801.sst", "000802.sst", "000803.sst"));
  EXPECT_EQ(group_->ListedFiles().count("000803.sst"), 1u);
  manifest.reset();
  EXPECT_OK(fs_->UnlockFile(lock, io, nullptr));
}

// RocksDB deletes the table of a flush whose Close failed, while another thread may be changing the
// MANIFEST. A file that is listed and does not exist would be waited for.
TEST_F(FileSystemTest, AFileThatIsRemovedMeanwhileIsNotListed) {
  const auto local = std::make_shared<Watched>(rocksdb::FileSystem::Default());
  fs_ = MakeFileSystem(MakeStoreOptions(), local);
  std::filesystem::create_directories(directory_);
  const rocksdb::IOOptions io;
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", io, &lock, nullptr));
  const std::string table = directory_ + "/000803.sst";
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(table, rocksdb::FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("table", io, nullptr));
  group_->Inject({"list", Code::kNoSpace, false, 0});
  ASSERT_THAT(file->Close(io, nullptr), StatusIs(rocksdb::Status::kNoSpace));
  ASSERT_OK(fs_->NewWritableFile(directory_ + "/MANIFEST-000804", rocksdb::FileOptions(), &file,
                                 nullptr));
  bool removed = false;
  local->when_read = [&] { removed = fs_->DeleteFile(table, io, nullptr).ok(); };
  EXPECT_OK(file->Append("record", io, nullptr));
  EXPECT_TRUE(removed);
  EXPECT_THAT(group_->ListedFiles(), IsEmpty());
  file.reset();
  EXPECT_OK(fs_->UnlockFile(lock, io, nullptr));
}

// Whatever kept it from being listed.
TEST_F(FileSystemTest, AFileThatCouldNotBeReadIsListedBeforeTheManifestGrows) {
  const auto local = std::make_shared<Watched>(rocksdb::FileSystem::Default());
  fs_ = MakeFileSystem(MakeStoreOptions(), local);
  std::filesystem::create_directories(directory_);
  const rocksdb::IOOptions io;
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", io, &lock, nullptr));
  std::unique_ptr<rocksdb::FSWritableFile> manifest, file;
  ASSERT_OK(fs_->NewWritableFile(directory_ + "/MANIFEST-000804", rocksdb::FileOptions(), &manifest,
                                 nullptr));
  WriteLocal(directory_ + "/000801.sst", "table");
  const auto close = [&](const std::string& name, bool reopen, bool Watched::*fault) {
    const std::string path = directory_ + "/" + name;
    ASSERT_OK(reopen ? fs_->ReopenWritableFile(path, rocksdb::FileOptions(), &file, nullptr)
                     : fs_->NewWritableFile(path, rocksdb::FileOptions(), &file, nullptr));
    if (!reopen) {
      ASSERT_OK(file->Append("table", io, nullptr));
    }
    (*local).*fault = true;
    EXPECT_THAT(file->Close(io, nullptr), StatusIs(rocksdb::Status::kIOError));
    (*local).*fault = false;
  };
  close("000801.sst", true, &Watched::no_bytes);
  close("000802.sst", false, &Watched::no_sizes);
  close("000803.sst", false, &Watched::not_closed);
  close("000804.sst", false, &Watched::not_synced);
  EXPECT_THAT(group_->ListedFiles(), IsEmpty());
  EXPECT_OK(manifest->Append("record", io, nullptr));
  EXPECT_THAT(group_->ListedFiles(),
              ::testing::UnorderedElementsAre(
                  ::testing::Pair("000801.sst", 5u), ::testing::Pair("000802.sst", 5u),
                  ::testing::Pair("000803.sst", 5u), ::testing::Pair("000804.sst", 5u)));
  file.reset();
  manifest.reset();
  EXPECT_OK(fs_->UnlockFile(lock, io, nullptr));
}

TEST_F(FileSystemTest, ReadOnlyAndSecondaryOpensTakeNothing) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Options options = MakeOptions();
  auto looker = MakeFileSystem(MakeStoreOptions());
  auto looker_env = rocksdb::NewCompositeEnv(looker);
  options.env = looker_env.get();
  DB* opened = nullptr;
  ASSERT_OK(DB::OpenForReadOnly(options, directory_, &opened));
  std::unique_ptr<DB> reader(opened);
  options.max_open_files = -1;
  ASSERT_OK(DB::OpenAsSecondary(options, directory_, root_ + "/secondary", &opened));
  std::unique_ptr<DB> secondary(opened);
  Put("b", "2");
  ASSERT_OK(secondary->TryCatchUpWithPrimary());  // reads on past the old end of the WAL
  std::string value;
  EXPECT_OK(secondary->Get(ReadOptions(), "b", &value));
  EXPECT_EQ(group_->epoch(), 1u);
  Put("c", "3");
}

TEST_F(FileSystemTest, PrepareOptionsLooksButDoesNotTake) {
  rocksdb::ConfigOptions config;
  ASSERT_OK(fs_->PrepareOptions(config));
  EXPECT_EQ(group_->epoch(), 0u);
  StoreOptions bad = MakeStoreOptions();
  bad.pool.clear();
  EXPECT_THAT(MakeFileSystem(bad)->PrepareOptions(config).ToString(),
              HasSubstr("option pool is not set"));
}

TEST_F(FileSystemTest, OptionsComeThroughRocksDbsMachinery) {
  rocksdb::ConfigOptions config;
  config.invoke_prepare_options = false;
  ASSERT_OK(fs_->ConfigureFromString(config, "window=16;ack=sync;replicas=a:1,b:2"));
  EXPECT_THAT(fs_->GetId(), HasSubstr("hyperloop://a:1,b:2?"));
  EXPECT_THAT(fs_->GetId(), HasSubstr("window=16"));
  EXPECT_THAT(fs_->ConfigureFromString(config, "windw=16").ToString(), HasSubstr("windw"));
  EXPECT_THAT(fs_->ConfigureFromString(config, "window=0").ToString(), HasSubstr("1 to 4096"));
  std::string value;
  ASSERT_OK(fs_->GetOption(config, "ack", &value));
  EXPECT_EQ(value, "sync");
}

TEST_F(FileSystemTest, ReopenedLogGoesOnAtItsEnd) {
  ASSERT_OK(Open(MakeOptions()));
  const std::string path = directory_ + "/000900.log";
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(path, rocksdb::FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("before", rocksdb::IOOptions(), nullptr));
  ASSERT_OK(file->Close(rocksdb::IOOptions(), nullptr));
  ASSERT_OK(fs_->ReopenWritableFile(path, rocksdb::FileOptions(), &file, nullptr));
  rocksdb::IOStatus same_size =
      file->Truncate(6, rocksdb::IOOptions(), nullptr);  // RocksDB does at each open
  EXPECT_OK(same_size);
  EXPECT_EQ(group_->CallsOf("truncate"), 0);
  EXPECT_THAT(file->Truncate(7, rocksdb::IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNotSupported));
  ASSERT_OK(file->Truncate(3, rocksdb::IOOptions(), nullptr));
  ASSERT_OK(file->Append("after", rocksdb::IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.log"], "befafter");
  ExpectLocalEqualsGroup();
}

TEST_F(FileSystemTest, ReusedLogsAreNewFiles) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  rocksdb::IOStatus made =
      fs_->NewWritableFile(directory_ + "/000900.log", rocksdb::FileOptions(), &file, nullptr);
  ASSERT_OK(made);
  ASSERT_OK(file->Append("old bytes", rocksdb::IOOptions(), nullptr));
  ASSERT_OK(fs_->ReuseWritableFile(directory_ + "/000901.log", directory_ + "/000900.log",
                                   rocksdb::FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("new", rocksdb::IOOptions(), nullptr));
  ASSERT_OK(file->Close(rocksdb::IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles().count("000900.log"), 0u);
  EXPECT_EQ(group_->LogFiles()["000901.log"], "new");
  EXPECT_THAT(file->PositionedAppend("x", 1, rocksdb::IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNotSupported));
}

bool MayFsync(int fd) {
  if (!FsyncHook::now ||
      FsyncHook::now(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd))))
    return true;
  errno = EIO;
  return false;
}

}  // namespace
}  // namespace hyperloop::plugin::testing

// This replaces the C library's function for the code that is linked into this program.
extern "C" int fsync(int fd) {
  if (!hyperloop::plugin::testing::MayFsync(fd)) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
