// How RocksDB and the files behave when the group fails.
#include <atomic>
#include <filesystem>
#include <thread>

#include "local/status.h"
#include "support/status_matchers.h"
#include "testing/errors_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Options;
using rocksdb::WriteOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A local file system that counts the bytes appended to logs, and fails such appends on request.
class LocalFaults : public rocksdb::FileSystemWrapper {
 public:
  LocalFaults() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "local faults"; }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           rocksdb::IODebugContext* dbg) override {
    std::unique_ptr<rocksdb::FSWritableFile> opened;
    IOStatus status = target()->NewWritableFile(path, options, &opened, dbg);
    if (status.ok()) file->reset(new File(std::move(opened), this, path.ends_with(".log")));
    return status;
  }

  std::atomic<int> appends{0};
  std::atomic<bool> fail_halfway{false};

 private:
  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile>&& file, LocalFaults* faults, bool log)
        : FSWritableFileOwnerWrapper(std::move(file)), faults_(faults), log_(log) {}
    using FSWritableFileOwnerWrapper::Append;
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    rocksdb::IODebugContext* dbg) override {
      if (!log_) return target()->Append(data, options, dbg);
      ++faults_->appends;
      if (!faults_->fail_halfway) return target()->Append(data, options, dbg);
      const rocksdb::Slice half(data.data(), data.size() / 2);
      target()->Append(half, options, dbg).PermitUncheckedError();
      return IOStatus::IOError("injected after " + std::to_string(half.size()) + " B");
    }

   private:
    LocalFaults* const faults_;
    const bool log_;
  };
};

// A local disk that has no room for a MANIFEST or CURRENT from a moment on.
class FullDisk : public rocksdb::FileSystemWrapper {
 public:
  FullDisk() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "full disk"; }
  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           rocksdb::IODebugContext* dbg) override {
    if (full && IsManifest(BaseOf(path))) return IOStatus::NoSpace("the disk is full");
    std::unique_ptr<rocksdb::FSWritableFile> opened;
    IOStatus status = target()->NewWritableFile(path, options, &opened, dbg);
    if (status.ok()) file->reset(new File(std::move(opened), this, IsManifest(BaseOf(path))));
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      rocksdb::IODebugContext* dbg) override {
    if (full && BaseOf(to) == "CURRENT") return IOStatus::NoSpace("the disk is full");
    return target()->RenameFile(from, to, options, dbg);
  }
  std::atomic<bool> full{false};

 private:
  class File : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(std::unique_ptr<rocksdb::FSWritableFile>&& file, FullDisk* disk, bool manifest)
        : FSWritableFileOwnerWrapper(std::move(file)), disk_(disk), manifest_(manifest) {}
    IOStatus Sync(const IOOptions& options, rocksdb::IODebugContext* dbg) override {
      if (disk_->full && manifest_) return IOStatus::NoSpace("the disk is full");
      return target()->Sync(options, dbg);
    }

   private:
    FullDisk* const disk_;
    const bool manifest_;
  };
};

TEST(StatusMapping, CodesBecomeWhatRocksDbActsOn) {
  for (Code code : {Code::kUnavailable, Code::kTimedOut, Code::kAborted}) {
    IOStatus status = ToIOStatus({code, "m"}, "c");
    EXPECT_TRUE(status.IsIOError() && status.GetRetryable() && !status.IsIOFenced())
        << status.ToString();
  }
  EXPECT_THAT(ToIOStatus(Fenced("m"), "c"), StatusIs(rocksdb::Status::kIOFenced));
  EXPECT_FALSE(ToIOStatus(Fenced("m"), "c").GetRetryable());
  EXPECT_THAT(ToIOStatus(NoSpace("m"), "c"), StatusIs(rocksdb::Status::kNoSpace));
  for (Code code :
       {Code::kInternal, Code::kProtection, Code::kPermissionDenied, Code::kAlreadyExists}) {
    IOStatus status = ToIOStatus({code, "m"}, "c");
    EXPECT_TRUE(status.IsIOError() && !status.GetRetryable() && !status.IsIOFenced())
        << status.ToString();
  }
  EXPECT_OK(ToIOStatus(hyperloop::Status::Ok(), "c"));
  EXPECT_THAT(ToIOStatus(TimedOut("m"), "c").ToString(), HasSubstr("c: timed out: m"));
}

// Whether or not the group carried out a failed append: RocksDB resumes, and the failed key never
// comes back.
TEST_F(ErrorsTest, RetryableAppendFailureResumesAndStaysFailed) {
  for (bool applied : {false, true}) {
    SCOPED_TRACE(applied);
    TearDown();
    SetUp();
    OpenListening();
    Put("before", "1");
    group_->Inject({"append", Code::kTimedOut, applied, 0});
    rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
    EXPECT_THAT(failed, StatusIs(rocksdb::Status::kIOError));
    ASSERT_TRUE(listener_->Wait());
    Put("after", "1");
    EXPECT_THAT(Get("failed"), HasSubstr("NotFound"));
    ExpectLocalEqualsGroup();
    auto content = ContentFromGroup();
    EXPECT_EQ(content.count("before") + content.count("after"), 2u);
    EXPECT_EQ(content.count("failed"), 0u) << "the tail was not cut";
    Crash();
    ASSERT_OK(Open(MakeOptions()));
    EXPECT_EQ(Get("before") + Get("after"), "11");
    EXPECT_THAT(Get("failed"), HasSubstr("NotFound"));
  }
}

// The process is killed before the group comes back. The failed append is then present as a whole
// or not at all, and local files agree with the group.
TEST_F(ErrorsTest, KilledAfterAnIndeterminateAppend) {
  OpenListening();
  Put("before", "1");
  group_->CutLink(Code::kUnavailable);
  group_->Inject({"append", Code::kTimedOut, true, 0});
  EXPECT_THAT(db_->Put(WriteOptions(), "open", std::string(5000, 'x')),
              StatusIs(rocksdb::Status::kIOError));
  std::shared_ptr<FakeGroup> old = group_;
  Crash();
  old->HealLink();  // RocksDB 7.8.3 cannot be closed while it waits to resume
  ASSERT_TRUE(listener_->Wait());
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("before"), "1");
  EXPECT_EQ(Get("open"), std::string(5000, 'x'));  // the group had it
  ExpectLocalEqualsGroup();
}

TEST_F(ErrorsTest, FileIsLatchedAndTailCutBeforeAnythingElse) {
  ASSERT_OK(Open(MakeOptions()));
  Put("memtable", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.dbtmp"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("good", IOOptions(), nullptr));
  group_->Inject({"append", Code::kTimedOut, true, 0});
  EXPECT_TRUE(file->Append("open", IOOptions(), nullptr).GetRetryable());
  EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "goodopen");
  EXPECT_EQ(ReadLocal(Path("000900.dbtmp")), "good")
      << "the local file must not be longer than what the group may have";
  EXPECT_THAT(file->Append("next", IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError))
      << "a gap would follow";
  EXPECT_EQ(group_->CallsOf("reconnect"), 0);
  std::unique_ptr<rocksdb::FSWritableFile> other;
  ASSERT_OK(fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &other, nullptr));
  EXPECT_EQ(group_->CallsOf("reconnect"), 1);
  EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "good");
  EXPECT_THAT(file->Append("next", IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
  ASSERT_OK(other->Append("fine", IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles()["000901.dbtmp"], "fine");
}

// Whoever follows a replica must not see what RocksDB takes back, whether the group or the local
// disk failed.
TEST_F(ErrorsTest, AFailedWriteIsNotDecidedBeforeItIsCut) {
  for (const bool local : {false, true}) {
    for (LocalWrite when : {LocalWrite::kAcknowledged, LocalWrite::kOverlapped}) {
      TearDown();
      SetUp();
      const auto faults = std::make_shared<LocalFaults>();
      StoreOptions store_options = MakeStoreOptions();
      store_options.local_write = when;
      Use(faults, store_options);
      Options options = MakeOptions();
      options.max_bgerror_resume_count = 0;
      ASSERT_OK(Open(options));
      Put("before", "1");
      EXPECT_EQ(group_->decided(), group_->last_record());
      faults->fail_halfway = local;
      if (!local) group_->Inject({"append", Code::kTimedOut, true, 0});
      ASSERT_THAT(db_->Put(WriteOptions(), "failed", "1"), StatusIs(rocksdb::Status::kIOError));
      const uint64_t failed = group_->last_record();
      EXPECT_LT(group_->decided(), failed);
      faults->fail_halfway = false;
      std::unique_ptr<rocksdb::FSWritableFile> file;
      ASSERT_OK(fs_->NewWritableFile(Path("000901.log"), FileOptions(), &file, nullptr));
      ASSERT_OK(file->Append("next", IOOptions(), nullptr));
      EXPECT_GT(group_->last_record(), failed + 2) << "nothing was cut";
      EXPECT_EQ(group_->decided(), group_->last_record());
    }
  }
}

// With ack=sync the sync decides. The append before the last one is never taken back.
TEST_F(ErrorsTest, WithAckSyncTheLastAppendIsDecidedByItsSync) {
  Use(rocksdb::FileSystem::Default(), WithAck(AckMode::kSync));
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  std::unique_ptr<rocksdb::FSWritableFile> file, manifest;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("confirmed,", IOOptions(), nullptr));
  EXPECT_LT(group_->decided(), group_->last_record());
  ASSERT_OK(file->Sync(IOOptions(), nullptr));
  EXPECT_EQ(group_->decided(), group_->last_record());
  ASSERT_OK(file->Append("returned,", IOOptions(), nullptr));
  const uint64_t returned = group_->last_record();
  ASSERT_OK(file->Append("failed", IOOptions(), nullptr));
  const uint64_t failed = group_->last_record();
  EXPECT_EQ(group_->decided(), returned);
  ASSERT_OK(fs_->NewWritableFile(Path("MANIFEST-000899"), FileOptions(), &manifest, nullptr));
  ASSERT_OK(manifest->Append("other", IOOptions(), nullptr));
  ASSERT_OK(manifest->Sync(IOOptions(), nullptr));
  EXPECT_EQ(group_->decided(), returned) << "another file's sync decides nothing here";
  group_->Inject({"sync", Code::kTimedOut, false, 0});
  EXPECT_THAT(file->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
  EXPECT_LT(group_->decided(), failed);
}

// A record states what is decided when it is made. A follower of a log that nobody syncs is no more
// than the last append behind.
TEST_F(ErrorsTest, WithAckSyncAllBeforeTheLastAppendIsDecidedWhenItIsMade) {
  Use(rocksdb::FileSystem::Default(), WithAck(AckMode::kSync));
  ASSERT_OK(Open(MakeOptions()));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  for (const char* piece : {"first,", "second,", "third"}) {
    const uint64_t before = group_->last_record();
    uint64_t stated = 0;
    group_->BeforeNextAppend([&] { stated = group_->decided(); });
    ASSERT_OK(file->Append(piece, IOOptions(), nullptr));
    if (piece != std::string_view("first,")) {
      EXPECT_EQ(stated, before) << piece;
    }
    EXPECT_EQ(group_->decided(), before) << piece;
  }
}

// What an append has stated as decided stays, if a sync of another thread fails beside it.
TEST_F(ErrorsTest, WithAckSyncASyncThatFailsBesideAnAppendTakesNothingBackThatIsDecided) {
  Use(rocksdb::FileSystem::Default(), WithAck(AckMode::kSync));
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  std::unique_ptr<rocksdb::FSWritableFile> file, next;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("first,", IOOptions(), nullptr));
  const uint64_t first = group_->last_record();
  const int syncs = group_->CallsOf("sync");
  std::thread syncing;
  group_->BeforeNextAppend([&] {
    EXPECT_EQ(group_->decided(), first);
    group_->Inject({"sync", Code::kTimedOut, false, 0});
    syncing = std::thread([&] {
      EXPECT_THAT(file->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
    });
    while (group_->CallsOf("sync") == syncs) std::this_thread::yield();
  });
  file->Append("second", IOOptions(), nullptr).PermitUncheckedError();
  syncing.join();
  EXPECT_EQ(group_->decided(), first);
  ASSERT_OK(fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &next, nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.log"], "first,");
}

TEST_F(ErrorsTest, TailOfARemovedFileIsForgotten) {
  ASSERT_OK(Open(MakeOptions()));
  Put("memtable", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.dbtmp"), FileOptions(), &file, nullptr));
  group_->Inject({"append", Code::kNoSpace, true, 0});
  group_->Inject({"truncate", Code::kNoSpace, false, 0});
  EXPECT_THAT(file->Append("open", IOOptions(), nullptr), StatusIs(rocksdb::Status::kNoSpace));
  ASSERT_OK(fs_->DeleteFile(Path("000900.dbtmp"), IOOptions(), nullptr));
  Put("a", "1");
  EXPECT_EQ(group_->CallsOf("truncate"), 1);
}

// A tail that cannot be cut disappears only together with its file.
TEST_F(ErrorsTest, TailThatCannotBeCutIsKeptAndNothingFollowsIt) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("memtable", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file, other;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.dbtmp"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("good", IOOptions(), nullptr));
  group_->Inject({"append", Code::kTimedOut, true, 0});
  EXPECT_THAT(file->Append("open", IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
  for (Code code : {Code::kInternal, Code::kInvalidArgument, Code::kCorruption}) {
    group_->Inject({"truncate", code, false, 0});
    const IOStatus status =
        fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &other, nullptr);
    EXPECT_THAT(status.ToString(), HasSubstr("cannot cut what a failed write left behind"));
    EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "goodopen");
    EXPECT_EQ(group_->LogFiles().count("000901.dbtmp"), 0u);
  }
  ASSERT_OK(fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &other, nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "good");
}

// A next log would begin with the sequence numbers of the tail.
TEST_F(ErrorsTest, WithoutRoomToCutATailNothingFollowsItButRemovals) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("memtable", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file, older, other, table;
  ASSERT_OK(fs_->NewWritableFile(Path("000899.dbtmp"), FileOptions(), &older, nullptr));
  ASSERT_OK(fs_->NewWritableFile(Path("000900.dbtmp"), FileOptions(), &file, nullptr));
  ASSERT_OK(fs_->NewWritableFile(Path("000900.sst"), FileOptions(), &table, nullptr));
  ASSERT_OK(file->Append("good", IOOptions(), nullptr));
  group_->Inject({"append", Code::kTimedOut, true, 0});
  EXPECT_THAT(file->Append("open", IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
  for (int i = 0; i < 6; ++i) group_->Inject({"truncate", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &other, nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_THAT(older->Append("next", IOOptions(), nullptr), StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_THAT(fs_->RenameFile(Path("000899.dbtmp"), Path("000898.log"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_THAT(table->Close(IOOptions(), nullptr), StatusIs(rocksdb::Status::kNoSpace));
  // Removals make room. A removal that fails leaves the tail in place.
  group_->Inject({"remove", Code::kInternal, false, 0});
  EXPECT_THAT(fs_->DeleteFile(Path("000900.dbtmp"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kIOError));
  EXPECT_OK(fs_->DeleteFile(Path("000899.dbtmp"), IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "goodopen");
  ASSERT_OK(fs_->NewWritableFile(Path("000901.dbtmp"), FileOptions(), &other, nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.dbtmp"], "good");
}

TEST_F(ErrorsTest, FailedSyncIsCutBackToWhatMayHaveReturned) {
  Use(rocksdb::FileSystem::Default(), WithAck(AckMode::kSync));
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("memtable", "1");
  std::unique_ptr<rocksdb::FSWritableFile> file, other;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("confirmed,", IOOptions(), nullptr));
  ASSERT_OK(file->Sync(IOOptions(), nullptr));
  ASSERT_OK(file->Append("returned,", IOOptions(), nullptr));
  ASSERT_OK(file->Append("failed", IOOptions(), nullptr));
  group_->Inject({"sync", Code::kTimedOut, false, 0});
  const rocksdb::IOStatus failed = file->Sync(IOOptions(), nullptr);
  EXPECT_THAT(failed, StatusIs(rocksdb::Status::kIOError));
  EXPECT_FALSE(failed.GetRetryable()) << "RocksDB could not resume: each later sync fails, too";
  EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database"));
  EXPECT_THAT(file->Append("next", IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError))
      << "a gap would follow";
  EXPECT_THAT(file->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError))
      << "before the tail is cut";
  ASSERT_OK(fs_->NewWritableFile(Path("000901.log"), FileOptions(), &other, nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.log"], "confirmed,returned,");
  EXPECT_THAT(file->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError))
      << "what was appended is gone";
  // Bytes that a Sync confirmed are never cut.
  ASSERT_OK(other->Append("confirmed", IOOptions(), nullptr));
  ASSERT_OK(other->Sync(IOOptions(), nullptr));
  group_->Inject({"sync", Code::kTimedOut, false, 0});
  EXPECT_THAT(other->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
  ASSERT_OK(fs_->NewWritableFile(Path("000902.log"), FileOptions(), &file, nullptr));
  EXPECT_EQ(group_->LogFiles()["000901.log"], "confirmed");
}

// A writer that was admitted before a Sync failed on another thread can find the file cut. Its
// bytes must not replace the bytes that were cut.
TEST_F(ErrorsTest, AppendToAFileThatWasCutMeanwhileAddsNothing) {
  ASSERT_OK(Open(MakeOptions()));
  std::unique_ptr<rocksdb::FSWritableFile> file, other;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("kept,", IOOptions(), nullptr));
  ASSERT_OK(file->Append("cut,", IOOptions(), nullptr));
  group_->BeforeNextAppend(
      [&] { ASSERT_OK(fs_->Truncate(Path("000900.log"), 5, IOOptions(), nullptr)); });
  const IOStatus late = file->Append("late", IOOptions(), nullptr);
  EXPECT_THAT(late, StatusIs(rocksdb::Status::kInvalidArgument));
  EXPECT_FALSE(late.GetRetryable()) << late.ToString();
  EXPECT_THAT(file->Append("later", IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kInvalidArgument))
      << "latched";
  ASSERT_OK(fs_->NewWritableFile(Path("000901.log"), FileOptions(), &other, nullptr));
  ASSERT_OK(other->Append("next", IOOptions(), nullptr)) << "nothing is left to cut";
  EXPECT_EQ(group_->LogFiles()["000900.log"], "kept,");
}

// Bytes for which Append returned are durable everywhere: no Sync can fail for them or cut them.
TEST_F(ErrorsTest, SyncAfterAcknowledgedAppendsAsksNobody) {
  ASSERT_OK(Open(MakeOptions()));
  group_->Inject({"sync", Code::kTimedOut, false, 0});
  Put("a", "1");
  ASSERT_OK(db_->SyncWAL());
  EXPECT_EQ(group_->CallsOf("sync"), 0);
  EXPECT_EQ(ContentFromGroup().count("a"), 1u);
}

TEST_F(ErrorsTest, HalfDoneLocalWriteIsCut) {
  for (LocalWrite when : {LocalWrite::kAcknowledged, LocalWrite::kOverlapped}) {
    TearDown();
    SetUp();
    const auto faults = std::make_shared<LocalFaults>();
    StoreOptions store_options = MakeStoreOptions();
    store_options.local_write = when;
    Use(faults, store_options);
    Options options = MakeOptions();
    options.max_bgerror_resume_count = 0;
    ASSERT_OK(Open(options));
    Put("before", "1");
    const std::string log = Path(LocalNames(".log").at(0));
    const std::string before = ReadLocal(log);
    faults->fail_halfway = true;
    EXPECT_THAT(db_->Put(WriteOptions(), "half", std::string(1000, 'h')),
                StatusIs(rocksdb::Status::kIOError));
    faults->fail_halfway = false;
    EXPECT_EQ(ReadLocal(log), before);
    Close();
    ASSERT_OK(Open(MakeOptions()));
    EXPECT_EQ(Get("before"), "1");
    EXPECT_THAT(Get("half"), HasSubstr("NotFound"));
    ExpectLocalEqualsGroup();
    Close();
    env_.reset();
    fs_.reset();
  }
}

// RocksDB resumes from NoSpace, and would go on with a log that has failed.
TEST_F(ErrorsTest, AFullLocalDiskDoesNotResumeAfterTheLogFailed) {
  using Step = std::function<IOStatus(rocksdb::FSWritableFile & manifest)>;
  const Step steps[] = {
      [&](rocksdb::FSWritableFile&) {
        std::unique_ptr<rocksdb::FSWritableFile> next;
        return fs_->NewWritableFile(Path("MANIFEST-000901"), FileOptions(), &next, nullptr);
      },
      [&](rocksdb::FSWritableFile& manifest) { return manifest.Sync(IOOptions(), nullptr); },
      [&](rocksdb::FSWritableFile&) {
        return fs_->RenameFile(Path("000902.dbtmp"), Path("CURRENT"), IOOptions(), nullptr);
      }};
  for (const Step& step : steps) {
    SCOPED_TRACE(&step - steps);
    TearDown();
    SetUp();
    const auto disk = std::make_shared<FullDisk>();
    Use(disk, MakeStoreOptions());
    Options options = MakeOptions();
    options.max_bgerror_resume_count = 0;
    ASSERT_OK(Open(options));
    Put("before", "1");
    std::unique_ptr<rocksdb::FSWritableFile> manifest, next;
    ASSERT_OK(fs_->NewWritableFile(Path("MANIFEST-000900"), FileOptions(), &manifest, nullptr));
    ASSERT_OK(fs_->NewWritableFile(Path("000902.dbtmp"), FileOptions(), &next, nullptr));
    ASSERT_OK(next->Append("MANIFEST-000900\n", IOOptions(), nullptr));
    ASSERT_OK(next->Close(IOOptions(), nullptr));
    group_->Inject({"append", Code::kTimedOut, false, 0});
    EXPECT_FALSE(db_->Put(WriteOptions(), "failed", "1").ok());
    disk->full = true;
    const IOStatus failed = step(*manifest);
    EXPECT_FALSE(failed.IsNoSpace() || failed.GetRetryable()) << failed.ToString();
    EXPECT_THAT(failed.ToString(), AllOf(HasSubstr("the disk is full"), HasSubstr("reopen")));
    disk->full = false;
    manifest.reset();
    Close();
  }
}

// A secondary instance reads the local file beside the primary.
TEST_F(ErrorsTest, LocalFileGetsOnlyWhatIsAcknowledged) {
  for (LocalWrite when : {LocalWrite::kAcknowledged, LocalWrite::kOverlapped}) {
    TearDown();
    SetUp();
    const auto faults = std::make_shared<LocalFaults>();
    StoreOptions store_options = MakeStoreOptions();
    store_options.local_write = when;
    Use(faults, store_options);
    Options options = MakeOptions();
    options.max_bgerror_resume_count = 0;
    ASSERT_OK(Open(options));
    Put("before", "1");
    const int appends = faults->appends;
    group_->Inject({"await", Code::kTimedOut, false, 0});
    EXPECT_THAT(db_->Put(WriteOptions(), "failed", "1"), StatusIs(rocksdb::Status::kIOError));
    EXPECT_EQ(faults->appends, appends + (when == LocalWrite::kOverlapped ? 1 : 0));
    Close();
    env_.reset();
    fs_.reset();
  }
}

TEST_F(ErrorsTest, FencedIsFatalAndReadsGoOn) {
  OpenListening();
  Put("before", "1");
  auto group = group_->LogFiles();
  group_->FenceOff();
  rocksdb::Status failed = db_->Put(WriteOptions(), "late", "1");
  EXPECT_THAT(failed, StatusIs(rocksdb::Status::kIOFenced));
  EXPECT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOFenced));
  EXPECT_THAT(db_->Put(WriteOptions(), "later", "1"), StatusIs(rocksdb::Status::kIOFenced));
  EXPECT_EQ(Get("before"), "1");
  Close();
  EXPECT_EQ(group_->LogFiles(), group);
}

TEST_F(ErrorsTest, FencedWhileReconnectingIsFatal) {
  OpenListening();
  Put("before", "1");
  group_->CutLink(Code::kUnavailable);
  group_->Inject({"append", Code::kUnavailable, false, 0});
  EXPECT_THAT(db_->Put(WriteOptions(), "a", "1"), StatusIs(rocksdb::Status::kIOError));
  group_->FenceOff();
  group_->HealLink();
  listener_->Wait();
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT_THAT(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr),
              StatusIs(rocksdb::Status::kIOFenced));
  EXPECT_THAT(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr),
              StatusIs(rocksdb::Status::kIOFenced));
}

// The group changes first, then the local directory: a change that the group refused must not be
// visible in the directory.
TEST_F(ErrorsTest, NamespaceChangesGoToTheGroupFirst) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("bytes", IOOptions(), nullptr));
  ASSERT_OK(file->Close(IOOptions(), nullptr));

  group_->Inject({"create", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->NewWritableFile(Path("000901.log"), FileOptions(), &file, nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_FALSE(std::filesystem::exists(Path("000901.log")));
  group_->Inject({"create", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_EQ(ReadLocal(Path("000900.log")), "bytes");
  group_->Inject({"remove", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->DeleteFile(Path("000900.log"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_TRUE(std::filesystem::exists(Path("000900.log")));
  group_->Inject({"rename", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->RenameFile(Path("000900.log"), Path("archive/000900.log"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_TRUE(std::filesystem::exists(Path("000900.log")));
  group_->Inject({"truncate", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->Truncate(Path("000900.log"), 2, IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kIOError));
  EXPECT_EQ(ReadLocal(Path("000900.log")), "bytes");
  ASSERT_OK(fs_->Truncate(Path("000900.log"), 2, IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles()["000900.log"], "by");
  ExpectLocalEqualsGroup();
}

// RocksDB repeats the move of a log into the archive. The group may have made it the first time.
TEST_F(ErrorsTest, ALogThatTheGroupHasArchivedIsArchivedHereToo) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  std::filesystem::create_directories(Path("archive"));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("bytes", IOOptions(), nullptr));
  ASSERT_OK(file->Close(IOOptions(), nullptr));
  const auto archive = [&] {
    return fs_->RenameFile(Path("000900.log"), Path("archive/000900.log"), IOOptions(), nullptr);
  };
  group_->Inject({"rename", Code::kTimedOut, true, 0});
  EXPECT_THAT(archive(), StatusIs(rocksdb::Status::kIOError));
  EXPECT_TRUE(std::filesystem::exists(Path("000900.log")));
  ASSERT_OK(archive());
  EXPECT_EQ(ReadLocal(Path("archive/000900.log")), "bytes");
  EXPECT_EQ(group_->LogFiles()["archive/000900.log"], "bytes");
  EXPECT_THAT(archive(), StatusIs(rocksdb::Status::kIOError)) << "it is no longer here";
}

// A listed file is on the local disk whenever the group lists it.
TEST_F(ErrorsTest, ListedFilesAppearHereFirst) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000900.sst"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("table", IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles().count("000900.sst"), 0u);
  ASSERT_OK(file->Close(IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles()["000900.sst"], 5u);
  ASSERT_OK(fs_->ReopenWritableFile(Path("000900.sst"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Close(IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles()["000900.sst"], 5u);
  ASSERT_OK(fs_->RenameFile(Path("000900.sst"), Path("000901.sst"), IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles().count("000900.sst"), 0u);
  EXPECT_EQ(group_->ListedFiles()["000901.sst"], 5u);
  ASSERT_OK(fs_->LinkFile(Path("000901.sst"), Path("000902.sst"), IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles()["000902.sst"], 5u);
  ASSERT_OK(fs_->RenameFile(Path("000902.sst"), Path("000902.sst.trash"), IOOptions(), nullptr));
  EXPECT_EQ(group_->ListedFiles().count("000902.sst"), 0u);
  group_->Inject({"remove", Code::kNoSpace, false, 0});
  EXPECT_THAT(fs_->DeleteFile(Path("000901.sst"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNoSpace));
  EXPECT_TRUE(std::filesystem::exists(Path("000901.sst")));
  EXPECT_THAT(fs_->LinkFile(Path("000901.sst"), Path("000903.log"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kNotSupported));
  // When a file from elsewhere becomes CURRENT, its bytes go to the group.
  WriteLocal(root_ + "/elsewhere", "MANIFEST-000900\n");
  ASSERT_OK(fs_->RenameFile(root_ + "/elsewhere", Path("CURRENT"), IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles()["CURRENT"], "MANIFEST-000900\n");
}

TEST_F(ErrorsTest, CloseWithALostGroupEnds) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("a", "1");
  group_->CutLink(Code::kUnavailable);
  group_->Inject({"append", Code::kUnavailable, true, 0});
  EXPECT_THAT(db_->Put(WriteOptions(), "b", "1"), StatusIs(rocksdb::Status::kIOError));
  Close();
  group_->HealLink();
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a"), "1");
  ExpectLocalEqualsGroup();
}

// A group that is out of reach lists no files. That does not mean that the group is empty: the
// directory stays paired with it.
TEST_F(ErrorsTest, CloseAfterAFailedReconnectKeepsThePairing) {
  Options options = MakeOptions();
  options.max_bgerror_resume_count = 0;
  ASSERT_OK(Open(options));
  Put("a", "1");
  group_->CutLink(Code::kUnavailable);
  group_->Inject({"append", Code::kUnavailable, true, 0});
  EXPECT_THAT(db_->Put(WriteOptions(), "b", "1"), StatusIs(rocksdb::Status::kIOError));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  EXPECT_THAT(fs_->NewWritableFile(Path("000900.log"), FileOptions(), &file, nullptr),
              StatusIs(rocksdb::Status::kIOError));
  EXPECT_EQ(group_->CallsOf("reconnect"), 1);
  Close();
  EXPECT_TRUE(std::filesystem::exists(Path("HYPERLOOP")));
  group_->HealLink();
  rocksdb::Status reopened = Open(MakeOptions());
  ASSERT_OK(reopened);
  EXPECT_EQ(Get("a"), "1");
  ExpectLocalEqualsGroup();
}

// An open does not set the local logs to the files of a group that has just gone out of reach.
TEST_F(ErrorsTest, OpenWhileTheGroupBreaksChangesNothing) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Close();
  const std::vector<std::string> before = LocalNames(".log");
  for (int skip : {0, 1, 2}) {
    group_->Inject({"files", Code::kUnavailable, false, skip});
    EXPECT_THAT(Open(MakeOptions()), StatusIs(rocksdb::Status::kIOError)) << skip;
    EXPECT_EQ(LocalNames(".log"), before) << skip;
    EXPECT_FALSE(std::filesystem::exists(Path("hyperloop-set-aside"))) << skip;
    group_->ForgetFaults();
  }
  ASSERT_OK(Open(MakeOptions()));
  EXPECT_EQ(Get("a"), "1");
}

// A list of files is not trusted either if the group goes out of reach while it is being read.
TEST_F(ErrorsTest, CloseWhileTheGroupBreaksKeepsThePairing) {
  for (int skip : {0, 1}) {
    ASSERT_OK(Open(MakeOptions()));
    Put("a", "1");
    group_->Inject({"files", Code::kUnavailable, false, skip});
    Close();
    EXPECT_FALSE(group_->ForgetFaults());
    EXPECT_TRUE(std::filesystem::exists(Path("HYPERLOOP"))) << skip;
  }
}

// RocksDB cannot open a database without its MANIFEST, but the logs hold acknowledged writes.
TEST_F(ErrorsTest, LogsWithBytesOutliveAMissingManifest) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  Close();
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(Path("LOCK"), IOOptions(), &lock, nullptr));
  for (const auto& [name, content] : group_->LogFiles()) {
    if (name.starts_with("MANIFEST-")) {
      ASSERT_OK(fs_->DeleteFile(Path(name), IOOptions(), nullptr));
    }
  }
  const auto before = group_->LogFiles();
  ASSERT_OK(fs_->UnlockFile(lock, IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles(), before);
  EXPECT_TRUE(std::filesystem::exists(Path("HYPERLOOP")));
}

// The same holds for tables: without CURRENT a new database would take their place.
TEST_F(ErrorsTest, TablesOutliveAMissingManifest) {
  ASSERT_OK(Open(MakeOptions()));
  Put("a", "1");
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Close();
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(Path("LOCK"), IOOptions(), &lock, nullptr));
  for (const auto& [name, content] : group_->LogFiles()) {
    const bool log_with_bytes = name.ends_with(".log") && !content.empty();
    ASSERT_FALSE(log_with_bytes) << name;
    if (name.starts_with("MANIFEST-")) {
      ASSERT_OK(fs_->DeleteFile(Path(name), IOOptions(), nullptr));
    }
  }
  ASSERT_OK(fs_->UnlockFile(lock, IOOptions(), nullptr));
  EXPECT_EQ(group_->LogFiles().count("CURRENT"), 1u);
  EXPECT_TRUE(std::filesystem::exists(Path("CURRENT")));
  EXPECT_THAT(Open(MakeOptions()), StatusIs(rocksdb::Status::kPathNotFound));
  EXPECT_EQ(LocalNames(".sst").size(), 1u);
}

// DestroyDB lists the directory before it locks. It may still delete files that opening the
// directory then removed.
TEST_F(ErrorsTest, LeftoversListedBeforeTheLockMayBeDeleted) {
  std::filesystem::create_directories(directory_);
  rocksdb::FileLock* lock = nullptr;
  ASSERT_OK(fs_->LockFile(Path("LOCK"), IOOptions(), &lock, nullptr));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->NewWritableFile(Path("000800.log"), FileOptions(), &file, nullptr));
  ASSERT_OK(file->Append("left", IOOptions(), nullptr));
  rocksdb::FileLock* const of_the_crashed = lock;
  Crash();  // a creation, or a DestroyDB, that was cut short
  ASSERT_TRUE(std::filesystem::exists(Path("000800.log")));
  ASSERT_OK(fs_->LockFile(Path("LOCK"), IOOptions(), &lock, nullptr));
  EXPECT_FALSE(std::filesystem::exists(Path("000800.log")));
  EXPECT_OK(fs_->DeleteFile(Path("000800.log"), IOOptions(), nullptr));
  EXPECT_THAT(fs_->DeleteFile(Path("000800.log"), IOOptions(), nullptr),
              StatusIs(rocksdb::Status::kPathNotFound));
  EXPECT_OK(fs_->UnlockFile(lock, IOOptions(), nullptr));
  const auto local = rocksdb::FileSystem::Default();
  EXPECT_OK(local->UnlockFile(of_the_crashed, IOOptions(), nullptr));
}

// The log also says so when such a file is only reopened.
TEST_F(ErrorsTest, FilesBelowTheDirectoryAreSaidToStayLocal) {
  ASSERT_OK(Open(MakeOptions()));
  std::filesystem::create_directories(Path("below"));
  std::unique_ptr<rocksdb::FSWritableFile> file;
  ASSERT_OK(fs_->ReopenWritableFile(Path("below/x"), FileOptions(), &file, nullptr));
  EXPECT_THAT(InfoLogText(), ::testing::HasSubstr("or in directories below it, are not replicated "
                                                  "(the first: " +
                                                  Path("below/x")));
}

}  // namespace
}  // namespace hyperloop::plugin::testing
