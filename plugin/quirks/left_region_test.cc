// Logs and MANIFESTs that have left the region: when the plugin says that they are finished, and
// what an opening makes of them.
#include <rocksdb/db.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "finished_logs.h"
#include "local/local_files.h"
#include "support/eventually.h"
#include "support/status_matchers.h"
#include "testing/database_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

namespace stdfs = std::filesystem;
using rocksdb::ColumnFamilyHandle;
using rocksdb::FlushOptions;
using rocksdb::WriteOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FinishedLogsTest : public ::testing::Test {
 protected:
  // What is finished since the last call.
  std::vector<FileId> Finished() { return std::exchange(finished_, {}); }

  std::vector<FileId> finished_;
  FinishedLogs logs_{[this](FileId file) { finished_.push_back(file); }};
};

TEST_F(FinishedLogsTest, AnOlderLogIsFinishedOnceTheNextHasBytes) {
  logs_.Made(4, 40);
  logs_.Began(4);
  logs_.Made(7, 70);
  EXPECT_THAT(Finished(), IsEmpty());
  logs_.Began(7);
  EXPECT_THAT(Finished(), ElementsAre(40));
  logs_.Made(8, 80, [] { return true; });
  logs_.Began(8);
  EXPECT_THAT(Finished(), ElementsAre(70)) << "each is told once";
  logs_.Made(9, 90);
  logs_.Began(9);
  EXPECT_THAT(Finished(), ElementsAre(80));
}

TEST_F(FinishedLogsTest, ALogOfWhichBytesMayGoIsNotFinished) {
  const auto dangling = []() -> bool {
    ADD_FAILURE() << "it is gone";
    return true;
  };
  logs_.Made(4, 40, [] { return false; });
  logs_.Made(5, 50, dangling);
  logs_.Gone(5, true);
  logs_.Made(6, 60, dangling);
  logs_.Gone(6, false);
  logs_.Gone(99, true);
  logs_.Began(9);
  EXPECT_THAT(Finished(), ElementsAre(50));
  logs_.Began(10);
  EXPECT_THAT(Finished(), IsEmpty());
}

TEST_F(FinishedLogsTest, AnOpeningFindsAllLogsButTheNewestFinished) {
  const auto of = [](FileId id, const char* name, Lane lane = Lane::kLog) {
    return FileInfo{id, name, lane, 1, 0};
  };
  const std::vector<FileInfo> files = {of(1, "000004.log"),      of(2, "000007.log"),
                                       of(3, "000006.log"),      of(4, "000009.sst"),
                                       of(5, "MANIFEST-000005"), of(6, "archive/000008.log"),
                                       of(7, "MANIFEST-000003"), of(8, "000011.log", Lane::kBulk)};
  logs_.Found(files);
  EXPECT_THAT(Finished(), ElementsAre(1, 3, 6));
  logs_.FoundCurrent(5, files);
  EXPECT_THAT(Finished(), ElementsAre(7));
  logs_.Made(12, 120);
  logs_.Began(12);
  EXPECT_THAT(Finished(), ElementsAre(2)) << "the newest one, once another has bytes";
}

// The disk cannot read one file any more, whatever name it gets.
class UnreadableFile final : public rocksdb::FileSystemWrapper {
 public:
  UnreadableFile() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "unreadable"; }
  void Lose(const std::string& path) { lost_ = InodeOf(path); }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override {
    if (lost_ != 0 && InodeOf(path) == lost_) return rocksdb::IOStatus::IOError("bad sector");
    return target()->NewRandomAccessFile(path, options, file, dbg);
  }

 private:
  static ino_t InodeOf(const std::string& path) {
    struct stat st;
    return ::stat(path.c_str(), &st) == 0 ? st.st_ino : 0;
  }
  ino_t lost_ = 0;
};

class LeftRegionTest : public DatabaseTest {
 protected:
  std::string Path(const std::string& name) { return directory_ + "/" + name; }

  // A database with a family that has one entry, in the first log, and then a flushed entry of the
  // default one. The first log has left the region.
  void MakeWithIdleFamily() {
    ASSERT_OK(Open(MakeOptions()));
    ASSERT_OK(db_->CreateColumnFamily({}, "idle", &idle_));
    ASSERT_OK(db_->Put(WriteOptions(), idle_, "idle", "1"));
    Put("busy", "1");
    log_ = Logs().front();
    EXPECT_FALSE(group_->IsFinished(log_));
    ASSERT_OK(db_->Flush(FlushOptions()));
    EXPECT_FALSE(group_->IsFinished(log_)) << "the next log has no bytes";
    Put("busy", "2");
    ASSERT_TRUE(group_->IsFinished(log_));
    ASSERT_TRUE(group_->Retire(log_));
  }
  // A log that left the region, and was then archived.
  void MakeWithArchivedLog() {
    archiving_ = MakeOptions();
    archiving_.WAL_ttl_seconds = 3600;
    ASSERT_OK(Open(archiving_));
    ASSERT_OK(db_->DisableFileDeletions());
    Put("a", "1");
    log_ = Logs().front();
    ASSERT_OK(db_->Flush(FlushOptions()));
    Put("b", "1");
    ASSERT_TRUE(group_->Retire(log_));
    ASSERT_OK(db_->EnableFileDeletions(true));
    archived_ = "archive/" + log_;
    ASSERT_TRUE(test::Eventually([&] { return stdfs::exists(Path(archived_)); }));
    archived_bytes_ = ReadLocal(Path(archived_));
    const Result<WholeFile> file =
        Describe(*rocksdb::FileSystem::Default(), Path(archived_), archived_);
    ASSERT_OK(file);
    archived_file_ = *file;
  }
  rocksdb::Status OpenArchiving() {
    archiving_.env = env_.get();
    return Open(archiving_);
  }
  void PutUnsynced(const std::string& key) { ASSERT_OK(db_->Put(WriteOptions(), key, "1")); }
  rocksdb::Status OpenWithAckSync() {
    StoreOptions store_options = MakeStoreOptions();
    store_options.ack = AckMode::kSync;
    fs_ = MakeFileSystem(store_options);
    env_ = rocksdb::NewCompositeEnv(fs_);
    return Open(MakeOptions());
  }
  void CrashWithFamily() {
    ASSERT_OK(db_->DestroyColumnFamilyHandle(idle_));
    Crash();
  }
  rocksdb::Status OpenFamilies() {
    std::vector<ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(
        MakeOptions(), directory_, {{"default", {}}, {"idle", {}}}, &handles, &db);
    db_.reset(db);
    for (ColumnFamilyHandle* handle : handles) {
      if (handle->GetName() == "idle") {
        idle_ = handle;
      } else {
        EXPECT_OK(db->DestroyColumnFamilyHandle(handle));
      }
    }
    return status;
  }
  void ExpectAllThere() {
    std::string value;
    ASSERT_OK(db_->Get({}, idle_, "idle", &value));
    EXPECT_EQ(value, "1");
    EXPECT_EQ(Get("busy"), "2");
    ASSERT_OK(db_->DestroyColumnFamilyHandle(idle_));
    Close();
  }
  std::vector<std::string> Logs() {
    std::vector<std::string> logs = LocalNames(".log");
    std::sort(logs.begin(), logs.end());
    return logs;
  }
  void FlipByte(const std::string& name) {
    std::string content = ReadLocal(Path(name));
    content[content.size() / 2] ^= 1;
    WriteLocal(Path(name), content);
  }

  ColumnFamilyHandle* idle_ = nullptr;
  std::string log_, archived_, archived_bytes_;
  WholeFile archived_file_;
  rocksdb::Options archiving_;
};

TEST_F(LeftRegionTest, RocksDbRecoversFromALogThatHasLeft) {
  MakeWithIdleFamily();
  const std::string content = ReadLocal(Path(log_));
  CrashWithFamily();
  EXPECT_EQ(group_->LogFiles().count(log_), 0u);
  EXPECT_EQ(group_->ListedFiles().count(log_), 1u);
  EXPECT_EQ(ReadLocal(Path(log_)), content);
  ASSERT_OK(OpenFamilies());
  ExpectAllThere();
  EXPECT_FALSE(stdfs::exists(directory_ + "/hyperloop-set-aside"));
  EXPECT_EQ(group_->ListedFiles().count(log_), 0u) << "it was recovered, and deleted as others are";
}

TEST_F(LeftRegionTest, ALogThatHasLeftAndIsDamagedOrGoneIsRefusedByName) {
  MakeWithIdleFamily();
  CrashWithFamily();
  FlipByte(log_);
  const uint64_t epoch = group_->epoch();
  EXPECT_THAT(OpenFamilies().ToString(),
              AllOf(HasSubstr(log_), HasSubstr("No replica"), HasSubstr("other bytes")));
  EXPECT_EQ(group_->epoch(), epoch);
  FlipByte(log_);
  stdfs::rename(Path(log_), Path("kept"));
  EXPECT_THAT(OpenFamilies().ToString(), AllOf(HasSubstr(log_), HasSubstr("No replica")));
  EXPECT_EQ(group_->epoch(), epoch);
  stdfs::rename(Path("kept"), Path(log_));
  ASSERT_OK(OpenFamilies());
  ExpectAllThere();
}

// RocksDB lists the logs in the directory, and does not miss one.
TEST_F(LeftRegionTest, AReaderIsToldThatALogThatHasLeftIsMissing) {
  MakeWithIdleFamily();
  CrashWithFamily();
  const auto told = [&] {
    rocksdb::DB* db = nullptr;
    ::testing::internal::CaptureStderr();
    EXPECT_OK(rocksdb::DB::OpenForReadOnly(MakeOptions(), directory_, &db));
    delete db;
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(), "");
  fs_ = MakeFileSystem(MakeStoreOptions());  // nothing is kept of what was read
  env_ = rocksdb::NewCompositeEnv(fs_);
  stdfs::remove(Path(log_));
  EXPECT_THAT(told(), AllOf(HasSubstr(log_), HasSubstr("may be older than what the group holds")));
}

TEST_F(LeftRegionTest, ADamagedLogThatHasLeftComesFromAReplica) {
  MakeWithIdleFamily();
  CrashWithFamily();
  const std::string bytes = ReadLocal(Path(log_));
  const Result<WholeFile> file = Describe(*rocksdb::FileSystem::Default(), Path(log_), log_);
  ASSERT_OK(file);
  group_->Hold(*file, bytes);
  for (const bool gone : {false, true}) {
    if (gone) {
      stdfs::remove(Path(log_));
    } else {
      FlipByte(log_);
    }
    rocksdb::FileLock* lock = nullptr;
    ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", rocksdb::IOOptions(), &lock, nullptr));
    EXPECT_EQ(ReadLocal(Path(log_)), bytes);
    ASSERT_OK(fs_->UnlockFile(lock, rocksdb::IOOptions(), nullptr));
  }
  ASSERT_OK(OpenFamilies());
  ExpectAllThere();
}

// RocksDB takes a damaged log for a shorter one. So it is read whatever was read before, as by a
// standby.
TEST_F(LeftRegionTest, ALogThatWasSoundBeforeIsReadAgain) {
  MakeWithIdleFamily();
  CrashWithFamily();
  const std::string bytes = ReadLocal(Path(log_));
  const Result<WholeFile> file = Describe(*rocksdb::FileSystem::Default(), Path(log_), log_);
  ASSERT_OK(file);
  group_->Hold(*file, bytes);
  FlipByte(log_);
  CheckedFiles checked;
  checked.Note(Path(log_), *file);
  fs_ = MakeFileSystem(MakeStoreOptions(), nullptr,
                       {.must_hold_database = true, .near = NearFiles({}, std::move(checked))});
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(directory_ + "/LOCK", rocksdb::IOOptions(), &lock, nullptr));
  EXPECT_EQ(ReadLocal(Path(log_)), bytes);
  ASSERT_OK(fs_->UnlockFile(lock, rocksdb::IOOptions(), nullptr));
}

// A log that the MANIFEST does not need is no reason to refuse anything.
TEST_F(LeftRegionTest, AnObsoleteLogThatNobodyHasIsForgotten) {
  ASSERT_OK(Open(MakeOptions()));
  ASSERT_OK(db_->DisableFileDeletions());
  Put("a", "1");
  const std::string log = Logs().front();
  ASSERT_OK(db_->Flush(FlushOptions()));
  Put("b", "1");
  ASSERT_TRUE(group_->Retire(log));
  Crash();
  stdfs::remove(Path(log));
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a"), "1");
  EXPECT_EQ(Get("b"), "1");
  EXPECT_EQ(group_->ListedFiles().count(log), 0u);
  ExpectLocalEqualsGroup();
}

TEST_F(LeftRegionTest, AMANIFESTThatWasRolledIsFinished) {
  rocksdb::Options options = MakeOptions();
  options.max_manifest_file_size = 1;
  ASSERT_OK(Open(options));
  ASSERT_OK(db_->DisableFileDeletions());
  const auto manifests = [&] {
    std::vector<std::string> names;
    for (const auto& [name, content] : group_->LogFiles())
      if (name.starts_with("MANIFEST-")) names.push_back(name);
    return names;
  };
  const std::string first = manifests().back();
  EXPECT_FALSE(group_->IsFinished(first));
  Put("a", "1");
  ASSERT_OK(db_->Flush(FlushOptions()));
  ASSERT_GT(manifests().size(), 1u);
  EXPECT_TRUE(group_->IsFinished(first));
  EXPECT_FALSE(group_->IsFinished(manifests().back()));
  ASSERT_TRUE(group_->Retire(first));
  Crash();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a"), "1");
  EXPECT_FALSE(stdfs::exists(directory_ + "/hyperloop-set-aside"));
  ExpectLocalEqualsGroup();
}

// RocksDB deletes it soon, unless deletions are held off.
TEST_F(LeftRegionTest, ADamagedMANIFESTThatWasRolledIsMended) {
  rocksdb::Options options = MakeOptions();
  options.max_manifest_file_size = 1;
  ASSERT_OK(Open(options));
  ASSERT_OK(db_->DisableFileDeletions());
  const std::string first = group_->LogFiles().rbegin()->first;
  ASSERT_TRUE(first.starts_with("MANIFEST-"));
  Put("a", "1");
  ASSERT_OK(db_->Flush(FlushOptions()));
  ASSERT_TRUE(group_->Retire(first));
  const std::string sound = ReadLocal(Path(first));
  const auto file = Describe(*rocksdb::FileSystem::Default(), Path(first), first);
  ASSERT_OK(file);
  FlipByte(first);
  ASSERT_OK(group_->MendLocal(*file, sound));
  EXPECT_EQ(ReadLocal(Path(first)), sound);
  ASSERT_OK(fs_->DeleteFile(Path(first), rocksdb::IOOptions(), nullptr));
  EXPECT_THAT(group_->MendLocal(*file, sound), StatusIs(Code::kNotFound));
  EXPECT_FALSE(stdfs::exists(Path(first)));
}

// DB::ListColumnFamilies reads CURRENT and its MANIFEST before the directory is locked.
TEST_F(LeftRegionTest, AMANIFESTThatHasLeftIsNotReadFromTheRegion) {
  rocksdb::Options options = MakeOptions();
  options.max_manifest_file_size = 1;
  ASSERT_OK(Open(options));
  ASSERT_OK(db_->DisableFileDeletions());
  Put("a", "1");
  const std::string first = group_->LogFiles().rbegin()->first;
  ASSERT_TRUE(first.starts_with("MANIFEST-"));
  ASSERT_OK(db_->Flush(FlushOptions()));
  ASSERT_TRUE(group_->Retire(first));
  Crash();
  WriteLocal(Path("CURRENT"), "");
  std::vector<std::string> families;
  ASSERT_OK(rocksdb::DB::ListColumnFamilies(MakeOptions(), directory_, &families));
  EXPECT_THAT(families, ElementsAre("default"));
}

TEST_F(LeftRegionTest, ALogThatHasLeftIsArchivedUnderItsNewName) {
  ASSERT_NO_FATAL_FAILURE(MakeWithArchivedLog());
  EXPECT_EQ(group_->ListedFiles().count(archived_), 1u);
  EXPECT_EQ(group_->ListedFiles().count(log_), 0u);
  Crash();
  ASSERT_OK(OpenArchiving());
  EXPECT_EQ(group_->ListedFiles().count(archived_), 1u);
  ExpectLocalEqualsGroup();
}

// No database needs it to be opened.
TEST_F(LeftRegionTest, AnArchivedLogThatCannotBeHadNowComesWithALaterOpening) {
  ASSERT_NO_FATAL_FAILURE(MakeWithArchivedLog());
  Crash();
  stdfs::remove(Path(archived_));
  group_->FailFetches(Unavailable("a replica is out of reach"));
  ASSERT_OK(OpenArchiving());
  EXPECT_EQ(Get("a") + Get("b"), "11");
  Crash();
  group_->FailFetches({});
  group_->Hold(archived_file_, archived_bytes_);
  ASSERT_OK(OpenArchiving());
  EXPECT_EQ(ReadLocal(Path(archived_)), archived_bytes_);
  ExpectLocalEqualsGroup();
}

// The archive may be missing, too.
TEST_F(LeftRegionTest, AMissingArchivedLogIsBroughtIfTheGroupStillListsIt) {
  ASSERT_NO_FATAL_FAILURE(MakeWithArchivedLog());
  stdfs::remove_all(Path("archive"));
  ASSERT_OK(group_->MendLocal(archived_file_, archived_bytes_));
  EXPECT_EQ(ReadLocal(Path(archived_)), archived_bytes_);
  EXPECT_FALSE(stdfs::exists(Path("hyperloop-set-aside")));
  ASSERT_OK(fs_->DeleteFile(Path(archived_), rocksdb::IOOptions(), nullptr));
  EXPECT_THAT(group_->MendLocal(archived_file_, archived_bytes_), StatusIs(Code::kNotFound));
  EXPECT_TRUE(stdfs::is_empty(Path("archive")));
}

TEST_F(LeftRegionTest, ADamagedArchivedLogIsMended) {
  ASSERT_NO_FATAL_FAILURE(MakeWithArchivedLog());
  FlipByte(archived_);
  ASSERT_OK(group_->MendLocal(archived_file_, archived_bytes_));
  EXPECT_EQ(ReadLocal(Path(archived_)), archived_bytes_);
}

TEST_F(LeftRegionTest, ALogThatHasLeftAndCannotBeReadComesFromAReplica) {
  const auto disk = std::make_shared<UnreadableFile>();
  fs_ = MakeFileSystem(MakeStoreOptions(), disk);
  env_ = rocksdb::NewCompositeEnv(fs_);
  MakeWithIdleFamily();
  ASSERT_OK(db_->DestroyColumnFamilyHandle(idle_));
  Close();
  const std::string bytes = ReadLocal(Path(log_));
  const Result<WholeFile> file = Describe(*rocksdb::FileSystem::Default(), Path(log_), log_);
  ASSERT_OK(file);
  disk->Lose(Path(log_));
  EXPECT_THAT(OpenFamilies().ToString(), AllOf(HasSubstr(log_), HasSubstr("bad sector")));
  group_->Hold(*file, bytes);
  ASSERT_OK(OpenFamilies());
  ExpectAllThere();
}

// A program may make any file through the Env.
TEST_F(LeftRegionTest, OnlyTheLogsOfTheDatabaseAreFinishedByTheNextOne) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  const std::string log = Logs().front();
  stdfs::create_directories(Path("archive"));
  std::unique_ptr<rocksdb::FSWritableFile> zero, archived;
  ASSERT_OK(fs_->NewWritableFile(Path("0.log"), {}, &zero, nullptr));
  ASSERT_OK(fs_->NewWritableFile(Path("archive/" + log), {}, &archived, nullptr));
  zero.reset();
  ASSERT_OK(db_->DisableFileDeletions());
  ASSERT_OK(db_->Flush(FlushOptions()));
  Put("b", "1");
  EXPECT_TRUE(group_->IsFinished(log));
  EXPECT_FALSE(group_->IsFinished("archive/" + log));
  EXPECT_FALSE(group_->IsFinished("0.log"));
}

// RocksDB syncs a log that another one follows only with the next synced write, or not at all.
TEST_F(LeftRegionTest, WithAckSyncALogIsFinishedByTheNextThoughItWasNotSynced) {
  ASSERT_OK(OpenWithAckSync());
  ASSERT_OK(db_->DisableFileDeletions());
  PutUnsynced("a");
  const std::string log = Logs().back();
  ASSERT_OK(db_->Flush(FlushOptions()));
  EXPECT_FALSE(group_->IsFinished(log)) << "the next log has no bytes";
  PutUnsynced("b");
  EXPECT_TRUE(group_->IsFinished(log));
  EXPECT_FALSE(group_->IsFinished(Logs().back()));
}

// The failed sync would cut the last append, which a file of the bulk lane does not allow. So every
// later change would fail.
TEST_F(LeftRegionTest, WithAckSyncAFailedSyncCutsNothingOfALogThatHasLeft) {
  ASSERT_OK(OpenWithAckSync());
  ASSERT_OK(db_->DisableFileDeletions());
  PutUnsynced("a");
  const std::string log = Logs().back();
  ASSERT_OK(db_->Flush(FlushOptions()));
  std::thread([&] { PutUnsynced("b"); }).join();
  ASSERT_TRUE(group_->Retire(log));
  group_->Inject({"sync"});
  EXPECT_FALSE(db_->SyncWAL().ok()) << "of both logs, by a thread that has written to neither";
  std::unique_ptr<rocksdb::FSWritableFile> next;
  EXPECT_OK(fs_->NewWritableFile(Path("000999.dbtmp"), {}, &next, nullptr))
      << "nothing is to be cut";
  next.reset();
  Crash();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a") + Get("b"), "11");
  ExpectLocalEqualsGroup();
}

// A write whose sync fails is cut from its log, which must stay in the region for that.
TEST_F(LeftRegionTest, WithAckSyncALogWhoseSyncHasFailedIsNotFinished) {
  ASSERT_OK(OpenWithAckSync());
  ASSERT_OK(db_->DisableFileDeletions());
  PutUnsynced("a");
  const std::string log = Logs().back();
  group_->Inject({"sync"});
  WriteOptions synced;
  synced.sync = true;
  EXPECT_FALSE(db_->Put(synced, "b", "1").ok());
  Crash();
  EXPECT_FALSE(group_->IsFinished(log));
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a"), "1");
  ExpectLocalEqualsGroup();
}

// All of the first log was confirmed before.
TEST_F(LeftRegionTest, WithAckSyncALogIsFinishedIfTheSyncThatFailedCutNothing) {
  ASSERT_OK(OpenWithAckSync());
  PutUnsynced("memtable");
  std::vector<std::unique_ptr<rocksdb::FSWritableFile>> logs(3);
  const auto begin = [&](int i) {
    const std::string path = Path("00090" + std::to_string(i) + ".log");
    ASSERT_OK(fs_->NewWritableFile(path, {}, &logs[i], nullptr));
    ASSERT_OK(logs[i]->Append("confirmed", {}, nullptr));
    ASSERT_OK(logs[i]->Sync({}, nullptr));
  };
  const auto fail_sync = [&](int i) {
    group_->Inject({"sync"});
    EXPECT_FALSE(logs[i]->Sync({}, nullptr).ok());
  };
  begin(0);
  fail_sync(0);
  EXPECT_FALSE(group_->IsFinished("000900.log"));
  begin(1);
  EXPECT_TRUE(group_->IsFinished("000900.log"));
  ASSERT_OK(logs[1]->Append("not", {}, nullptr));
  fail_sync(1);
  begin(2);
  EXPECT_FALSE(group_->IsFinished("000901.log"));
  EXPECT_EQ(group_->LogFiles()["000901.log"], "confirmed");
}

TEST_F(LeftRegionTest, WithManualFlushesALogIsFinishedByTheNextToo) {
  rocksdb::Options options = MakeOptions();
  options.manual_wal_flush = true;
  ASSERT_OK(Open(options));
  ASSERT_OK(db_->DisableFileDeletions());
  PutUnsynced("a");
  ASSERT_OK(db_->FlushWAL(false));
  PutUnsynced("b");
  const std::string log = Logs().back();
  ASSERT_OK(db_->Flush(FlushOptions()));
  PutUnsynced("c");
  EXPECT_FALSE(group_->IsFinished(log)) << "the next log has its bytes in a buffer";
  ASSERT_OK(db_->FlushWAL(false));
  ASSERT_TRUE(group_->IsFinished(log));
  ASSERT_TRUE(group_->Retire(log));
  Crash();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a") + Get("b") + Get("c"), "111");
}

}  // namespace
}  // namespace hyperloop::plugin::testing
