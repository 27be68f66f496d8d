// How RocksDB reacts to the errors that it gets: none of its own assertions may end the process.
#include <pthread.h>
#include <rocksdb/utilities/transaction.h>
#include <rocksdb/utilities/transaction_db.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "support/status_matchers.h"
#include "testing/errors_fixture.h"

namespace hyperloop::plugin::testing {
namespace {

using rocksdb::FileOptions;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Options;
using rocksdb::WriteOptions;
using ::testing::HasSubstr;
using ::testing::Not;

// RocksDB 7.8.3 resumes from a retryable error by a flush, which makes a new log; without anything
// to flush it takes the old log again and fails an assertion at the next write (or, without
// assertions, stops).
class SurvivalTest : public ErrorsTest {
 protected:
  enum class State { kOpened, kFlushed, kWritten };

  void Reach(State state) { Reach(state, Manually()); }
  void Reach(State state, const Options& options) {
    ASSERT_OK(Open(options));
    if (state == State::kOpened) return;
    Put("before", "1");
    if (state != State::kWritten) {
      ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
    }
  }
  Options Manually() {
    Options options = MakeOptions();
    options.max_bgerror_resume_count = 0;  // the test calls Resume itself, at a known time
    options.max_manifest_file_size = 1;    // each change of the MANIFEST makes a new one
    options.write_buffer_size = 64 << 10;  // little to preallocate: there are many databases
    options.manifest_preallocation_size = 4096;
    options.allow_fallocate = false;
    return options;
  }
  // The first write of a log fails while the older log's entries wait to be flushed.
  void FailBehindAnImmutableMemtable(Options options) {
    options.max_write_buffer_number = 4;
    ASSERT_OK(Open(options));
    ASSERT_OK(db_->PauseBackgroundWork());
    Put("immutable", "1");
    rocksdb::FlushOptions no_wait;
    no_wait.wait = false;
    no_wait.allow_write_stall = true;
    ASSERT_OK(db_->Flush(no_wait));  // a new log
    group_->Inject({"append", Code::kTimedOut, true, 0});
    const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
    EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database when the cause is gone"));
  }
  // A change of the MANIFEST failed just now, and "unflushed" is in a memtable.
  void ExpectALogThatFailsNowToStopTheDatabase() {
    group_->Inject({"append", Code::kTimedOut, true, 0});
    const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
    EXPECT_THAT(failed, StatusIs(rocksdb::Status::kIOError));
    EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database"));
    static_cast<void>(db_->Resume().ok());
    static_cast<void>(db_->Put(WriteOptions(), "after", "1").ok());
    Close();
    group_->ForgetFaults();
    ASSERT_OK(Open(Manually()));
    EXPECT_EQ(Get("unflushed"), "1");
    ExpectLocalEqualsGroup();
    Close();
  }
};

// One call of the group fails once, with one code, under a database in each state.
class GroupErrorTest : public SurvivalTest,
                       public ::testing::WithParamInterface<std::tuple<std::string_view, Code>> {
 protected:
  struct Writing {
    AckMode ack;
    bool sync;                  // of the writes
    bool flushes_first = true;  // before it resumes; after a failed write this is fatal to RocksDB
  };

  static bool IsOfALog(std::string_view call) {
    return call == "append" || call == "await" || call == "sync" || call == "truncate";
  }
  // With ack=append nothing asks for a sync, and with ack=sync no append is awaited.
  static std::vector<Writing> WritingsThatMake(std::string_view call) {
    std::vector<Writing> writings;
    if (call != "sync") writings.push_back({AckMode::kAppend, false});
    if (call != "await") {
      writings.push_back({AckMode::kSync, false});
      writings.push_back({AckMode::kSync, true});
    }
    if (!IsOfALog(call)) return writings;
    for (size_t i = 0, count = writings.size(); i < count; ++i)
      writings.push_back({writings[i].ack, writings[i].sync, false});
    return writings;
  }
  void ExpectReadable(State state) {
    EXPECT_EQ(Get("before"), state == State::kOpened ? "NotFound: " : "1");
  }
  void ExpectNotInGroup(const std::string& key) {
    for (const auto& [name, content] : group_->LogFiles())
      EXPECT_THAT(content, Not(HasSubstr(key))) << name << " has a write that failed";
  }
  // Writes, flushes and resumes, closes and reopens, while the injected faults come.
  void ExpectAlive(State state, Writing writing) {
    WriteOptions options;
    options.sync = writing.sync;
    const bool acknowledges = writing.sync || writing.ack == AckMode::kAppend;
    const bool first = db_->Put(options, "first", "1").ok();
    ExpectReadable(state);
    told_ = (writing.flushes_first && !db_->Flush(rocksdb::FlushOptions()).ok()) || !first;
    if (!db_->Resume().ok()) static_cast<void>(db_->Resume().ok());
    const bool after = db_->Put(options, "after", "1").ok();
    if (!first && after) ExpectNotInGroup("first");
    static_cast<void>(db_->Flush(rocksdb::FlushOptions()).ok());
    ExpectReadable(state);
    Close();
    if (!group_->ForgetFaults()) ++met_;
    ASSERT_OK(Open(Manually()));
    ExpectReadable(state);
    if (first && acknowledges) {
      EXPECT_EQ(Get("first"), "1");
    }
    if (after) {
      EXPECT_EQ(Get("after"), "1");
    }
    if (!first && after) {
      EXPECT_THAT(Get("first"), HasSubstr("NotFound"));
    }
    ExpectLocalEqualsGroup();
    Close();
  }

  int met_ = 0;        // databases that the fault met
  bool told_ = false;  // the last one's first write or flush failed
};

TEST_P(GroupErrorTest, LeavesRocksDbAlive) {
  const auto& [call, code] = GetParam();
  const bool truncates = call == "truncate";
  for (State state : {State::kOpened, State::kFlushed, State::kWritten}) {
    for (const Writing& writing : WritingsThatMake(call)) {
      SCOPED_TRACE("state " + std::to_string(static_cast<int>(state)) + ", ack " +
                   std::to_string(static_cast<int>(writing.ack)) + ", sync " +
                   std::to_string(writing.sync) + ", flushes " +
                   std::to_string(writing.flushes_first));
      TearDown();
      SetUp();
      Use(rocksdb::FileSystem::Default(), WithAck(writing.ack));
      env_ = std::make_unique<EnvWithShortPauses>(std::move(env_));
      Options options = Manually();
      // The archive keeps what is left in a log.
      if (IsOfALog(call)) options.WAL_ttl_seconds = 3600;
      Reach(state, options);
      // What a failed append left is truncated. A truncation that fails leaves it there.
      if (truncates) group_->Inject({"append", Code::kTimedOut, true, 0});
      group_->Inject({std::string(call), code, !truncates, 0});
      ExpectAlive(state, writing);
      if (HasFatalFailure()) return;
      // From a full disk RocksDB resumes by itself, so that the flush may succeed after all.
      const bool flush_fails = call == "await files" && code != Code::kNoSpace;
      if (call == "append" || call == "await" || flush_fails) {
        EXPECT_TRUE(told_) << "a record may be missing, and nobody was told";
      }
    }
  }
  EXPECT_GT(met_, 0) << "no database made the call";
}

std::string NameOfError(const ::testing::TestParamInfo<GroupErrorTest::ParamType>& info) {
  std::string name =
      std::string(std::get<0>(info.param)) + "_" + std::string(CodeName(std::get<1>(info.param)));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    CallsAndCodes, GroupErrorTest,
    ::testing::Combine(::testing::Values("append", "await", "sync", "create", "rename", "remove",
                                         "truncate", "list", "await files"),
                       ::testing::Values(Code::kTimedOut, Code::kUnavailable, Code::kFenced,
                                         Code::kNoSpace, Code::kCorruption, Code::kBusy,
                                         Code::kInternal)),
    NameOfError);

TEST_F(SurvivalTest, FirstWriteThatFailsStopsADatabaseWithNothingToFlush) {
  for (State state : {State::kOpened, State::kFlushed}) {
    for (const Code code : {Code::kTimedOut, Code::kNoSpace}) {
      SCOPED_TRACE(CodeName(code));
      TearDown();
      SetUp();
      Reach(state);
      group_->Inject({"append", code, true, 0});
      const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
      EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database when the cause is gone"));
      EXPECT_FALSE(failed.IsNoSpace());  // RocksDB would resume by itself
      EXPECT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOError));
      EXPECT_THAT(db_->Put(WriteOptions(), "after", "1"), StatusIs(rocksdb::Status::kIOError));
      Close();
      ASSERT_OK(Open(Manually()));
      Put("later", "1");
    }
  }
}

// Not every record of a log fills a memtable.
TEST_F(SurvivalTest, LogWhoseRecordsFillNoMemtableCannotBeResumed) {
  const auto log_data = [&] {
    rocksdb::WriteBatch batch;
    batch.PutLogData(std::string(100 << 10, 'x'));  // over several blocks
    ASSERT_OK(db_->Write(WriteOptions(), &batch));
  };
  const auto dropped = [&] {
    rocksdb::ColumnFamilyHandle* other = nullptr;
    ASSERT_OK(db_->CreateColumnFamily(Manually(), "other", &other));
    ASSERT_OK(db_->Put(WriteOptions(), other, "k", "1"));
    ASSERT_OK(db_->DropColumnFamily(other));
    ASSERT_OK(db_->DestroyColumnFamilyHandle(other));
  };
  for (const std::function<void()>& write : {std::function<void()>(log_data), {dropped}}) {
    TearDown();
    SetUp();
    Reach(State::kFlushed);
    write();
    group_->Inject({"append", Code::kTimedOut, true, 0});
    const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
    EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database when the cause is gone"));
    ASSERT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOError))
        << "the next write would stop the process";
    Close();
    ASSERT_OK(Open(Manually()));
    EXPECT_EQ(Get("before"), "1");
  }
}

// A prepared transaction is in the log only. Its commit fills a memtable, which a flush empties,
// though the log may stay.
TEST_F(SurvivalTest, PreparedTransactionsCountOnceTheyAreCommitted) {
  using rocksdb::Transaction;
  using rocksdb::TransactionDB;
  for (const bool commits : {false, true}) {
    for (const bool flushes : {false, true}) {
      SCOPED_TRACE(std::to_string(commits) + std::to_string(flushes));
      TearDown();
      SetUp();
      TransactionDB* opened = nullptr;
      ASSERT_OK(TransactionDB::Open(Manually(), {}, directory_, &opened));
      const std::unique_ptr<TransactionDB> db(opened);
      std::unique_ptr<Transaction> pinning(db->BeginTransaction(WriteOptions()));
      std::unique_ptr<Transaction> transaction(db->BeginTransaction(WriteOptions()));
      for (Transaction* each : {pinning.get(), transaction.get()}) {
        ASSERT_OK(each->SetName(each == pinning.get() ? "pinning" : "other"));
        ASSERT_OK(each->Put(each->GetName(), std::string(33 << 10, 'x')));
        ASSERT_OK(each->Prepare());
      }
      if (commits) {
        ASSERT_OK(transaction->Commit());
      }
      if (flushes) {
        ASSERT_OK(db->Flush(rocksdb::FlushOptions()));
      }
      group_->Inject({"append", Code::kTimedOut, true, 0});
      const rocksdb::Status failed = db->Put(WriteOptions(), "failed", "1");
      const bool stops = failed.ToString().find("reopen the database") != std::string::npos;
      EXPECT_EQ(stops, !commits || flushes) << failed.ToString();
      const rocksdb::Status resumed = db->GetRootDB()->Resume();
      EXPECT_EQ(resumed.ok(), !stops) << resumed.ToString();
      if (resumed.ok() && !stops) {
        EXPECT_OK(db->Put(WriteOptions(), "after", "1"));
      }
    }
  }
}

// RocksDB resumes from a failed MANIFEST without a new log. So a log that fails meanwhile must not
// look as if RocksDB could resume from that too.
TEST_F(SurvivalTest, LogThatFailsBehindAFailedManifestStopsTheDatabase) {
  // The flush makes a log, by "create", before it changes the MANIFEST, which is a new one here: it
  // makes and writes that, makes and writes a .dbtmp, and renames the .dbtmp to CURRENT.
  struct Step {
    const char* call;
    int first;
    int steps = 0;
  };
  for (Step step : {Step{"append", 0}, Step{"create", 1}, Step{"rename", 0}}) {
    for (;; ++step.steps) {
      SCOPED_TRACE(step.call + std::to_string(step.steps));
      TearDown();
      SetUp();
      Reach(State::kWritten);
      Put("unflushed", "1");
      group_->Inject({step.call, Code::kTimedOut, true, step.first + step.steps});
      const rocksdb::Status flushed = db_->Flush(rocksdb::FlushOptions());
      if (flushed.ok()) break;
      EXPECT_THAT(flushed, StatusIs(rocksdb::Status::kIOError));
      ExpectALogThatFailsNowToStopTheDatabase();
    }
    EXPECT_GE(step.steps, std::string(step.call) == "rename" ? 1 : 2) << step.call;
  }
}
// The file that becomes CURRENT is a part of that change. Here a memtable has entries to flush, so
// that RocksDB would resume.
TEST_F(SurvivalTest, LogThatFailsBehindAFailedFileForCurrentStopsTheDatabase) {
  namespace files = std::filesystem;
  for (const std::string step : {"create", "append", "local create", "local rename"}) {
    SCOPED_TRACE(step);
    TearDown();
    SetUp();
    ASSERT_OK(Open(Manually()));
    Put("unflushed", "1");
    const std::string path = Path("000900.dbtmp");
    if (step == "create" || step == "append") group_->Inject({step, Code::kTimedOut, true, 0});
    if (step == "local create") files::create_directory(path);
    std::unique_ptr<rocksdb::FSWritableFile> file;
    IOStatus changed = fs_->NewWritableFile(path, FileOptions(), &file, nullptr);
    if (changed.ok()) changed = file->Append(ReadLocal(Path("CURRENT")), IOOptions(), nullptr);
    files::remove(path);
    if (changed.ok()) changed = fs_->RenameFile(path, Path("CURRENT"), IOOptions(), nullptr);
    EXPECT_FALSE(changed.ok());
    ExpectALogThatFailsNowToStopTheDatabase();
  }
}

// As the page about the plugin says of these options.
TEST_F(SurvivalTest, UncheckedFailuresAreOverWithAFlush) {
  Options options = MakeOptions();
  options.paranoid_checks = false;
  ASSERT_OK(Open(options));
  Put("before", "1");
  group_->Inject({"append", Code::kTimedOut, false, 0});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(db_->Put(WriteOptions(), "failed", "1").ok()) << i;
  ASSERT_OK(db_->Flush(rocksdb::FlushOptions()));
  Put("after", "1");
  EXPECT_EQ(Get("before") + Get("after"), "11");
  ExpectLocalEqualsGroup();
}

TEST_F(SurvivalTest, AFailedCompressedLogStopsTheDatabase) {
  Options options = MakeOptions();
  options.wal_compression = rocksdb::kZSTD;
  ASSERT_OK(Open(options));
  Put("before", "1");
  group_->Inject({"append", Code::kTimedOut, false, 0});
  const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
  EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database"));
  Close();
  ASSERT_OK(Open(options));
  EXPECT_EQ(Get("before"), "1");
  EXPECT_THAT(Get("failed"), HasSubstr("NotFound"));
}

// Entries of older logs may be in a memtable that is just being flushed. RocksDB resumes without a
// new log if that flush ends first.
TEST_F(SurvivalTest, EntriesOfOlderLogsAreNothingToFlush) {
  FailBehindAnImmutableMemtable(Manually());
  ASSERT_OK(db_->ContinueBackgroundWork());
  EXPECT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOError))
      << "it could be with the same log";
  Close();
  ASSERT_OK(Open(Manually()));
  EXPECT_EQ(Get("immutable"), "1");
  EXPECT_THAT(Get("failed"), HasSubstr("NotFound"));
}

// A database that must be reopened can be closed, whatever fails in it later.
TEST_F(SurvivalTest, NothingIsResumedOnceTheDatabaseMustBeReopened) {
  FailBehindAnImmutableMemtable(MakeOptions());  // with RocksDB's own resuming
  const IOStatus listed = [&] {
    std::unique_ptr<rocksdb::FSWritableFile> table;
    EXPECT_OK(fs_->NewWritableFile(Path("000800.sst"), FileOptions(), &table, nullptr));
    group_->Inject({"list", Code::kTimedOut, false, 0});
    return table->Close(IOOptions(), nullptr);
  }();
  EXPECT_THAT(listed, StatusIs(rocksdb::Status::kIOError));
  EXPECT_FALSE(listed.GetRetryable()) << listed.ToString();
  group_->Inject({"list", Code::kTimedOut, false, 0});  // the flush's own table
  ASSERT_OK(db_->ContinueBackgroundWork());
  Close();
  group_->ForgetFaults();
  ASSERT_OK(Open(Manually()));
  EXPECT_EQ(Get("immutable"), "1");
}

// An outage meets the flush's thread and a writer at the same time: both errors say the same.
TEST_F(SurvivalTest, ErrorsOfOneOutageAgree) {
  ASSERT_OK(Open(MakeOptions()));
  std::unique_ptr<rocksdb::FSWritableFile> table;
  ASSERT_OK(fs_->NewWritableFile(Path("000800.sst"), FileOptions(), &table, nullptr));
  group_->Inject({"list", Code::kTimedOut, false, 0});
  group_->Inject({"append", Code::kTimedOut, true, 0});
  const int calls = group_->CallsOf("list");
  IOStatus listed;
  std::thread flush;
  group_->BeforeNextAppend([&] {
    flush = std::thread([&] { listed = table->Close(IOOptions(), nullptr); });
    while (group_->CallsOf("list") == calls) std::this_thread::yield();
  });
  const rocksdb::Status failed = db_->Put(WriteOptions(), "failed", "1");
  EXPECT_THAT(failed.ToString(), HasSubstr("reopen the database when the cause is gone"));
  flush.join();
  EXPECT_THAT(listed, StatusIs(rocksdb::Status::kIOError));
  EXPECT_FALSE(listed.GetRetryable()) << listed.ToString();
}

// The same holds for a log with entries to flush and a MANIFEST: RocksDB would use the failed log
// again, whichever of the two fails first.
TEST_F(SurvivalTest, ALogAndAManifestThatFailTogetherAreNotResumed) {
  for (int round = 0; round < 20; ++round) {
    const bool log_first = round % 2 == 0;
    const Code code = round % 4 < 2 ? Code::kTimedOut : Code::kNoSpace;
    SCOPED_TRACE(round);
    TearDown();
    SetUp();
    ASSERT_OK(Open(Manually()));
    Put("unflushed", "1");
    std::unique_ptr<rocksdb::FSWritableFile> manifest;
    ASSERT_OK(fs_->NewWritableFile(Path("MANIFEST-000900"), FileOptions(), &manifest, nullptr));
    group_->Inject({"append", code, true, 0});
    group_->Inject({"append", code, true, 0});
    const int calls = group_->CallsOf("append");
    IOStatus of_manifest;
    rocksdb::Status of_log;
    const auto fail_log = [&] { of_log = db_->Put(WriteOptions(), "failed", "1"); };
    const auto fail_manifest = [&] { of_manifest = manifest->Append("x", IOOptions(), nullptr); };
    std::thread other;
    group_->BeforeNextAppend([&] {
      other = log_first ? std::thread(fail_log) : std::thread(fail_manifest);
      while (group_->CallsOf("append") == calls) std::this_thread::yield();
    });
    if (log_first) {
      fail_manifest();
    } else {
      fail_log();
    }
    other.join();
    EXPECT_THAT(of_manifest, StatusIs(rocksdb::Status::kIOError));
    EXPECT_FALSE(of_manifest.GetRetryable() || of_manifest.IsNoSpace()) << of_manifest.ToString();
    EXPECT_TRUE(of_log.IsIOError() && !of_log.IsNoSpace()) << of_log.ToString();
    EXPECT_THAT(db_->Resume(), StatusIs(rocksdb::Status::kIOError)) << of_log.ToString();
    Close();
    group_->ForgetFaults();
    ASSERT_OK(Open(Manually()));
    EXPECT_EQ(Get("unflushed"), "1");
    Close();
  }
}

// With entries in the log itself RocksDB goes on with another one.
TEST_F(SurvivalTest, LaterWriteOfALogThatFailsIsResumed) {
  listener_ = std::make_shared<RecoveryListener>();
  Options options = MakeOptions();
  options.listeners.push_back(listener_);
  ASSERT_OK(Open(options));
  Put("unflushed", "1");
  group_->Inject({"append", Code::kTimedOut, true, 0});
  EXPECT_THAT(db_->Put(WriteOptions(), "failed", "1"), StatusIs(rocksdb::Status::kIOError));
  ASSERT_TRUE(listener_->Wait()) << InfoLogText();
  Put("after", "1");
  EXPECT_THAT(Get("failed"), HasSubstr("NotFound"));
  EXPECT_EQ(Get("unflushed"), "1");
}

// RocksDB syncs older logs together with the newest one, and before a flush in the background. A
// second sync of a log whose sync failed ends the process by an assertion, and nothing keeps the
// two apart. So the older log's failure is told by what follows it in the same call.
TEST_F(SurvivalTest, TheSyncOfAnOlderLogFailsOnlyWhereNothingElseTellsIt) {
  Use(rocksdb::FileSystem::Default(), WithAck(AckMode::kSync));
  ASSERT_OK(Open(Manually()));
  std::unique_ptr<rocksdb::FSWritableFile> older, newest;
  ASSERT_OK(fs_->NewWritableFile(Path("000801.log"), FileOptions(), &older, nullptr));
  ASSERT_OK(fs_->NewWritableFile(Path("000802.log"), FileOptions(), &newest, nullptr));
  ASSERT_OK(older->Append("1", IOOptions(), nullptr));
  ASSERT_OK(newest->Append("2", IOOptions(), nullptr));
  group_->FenceOff();
  EXPECT_OK(older->Sync(IOOptions(), nullptr)) << "the newest log's sync follows";
  std::thread background([&] {
    pthread_setname_np(pthread_self(), "rocksdb:high");
    EXPECT_OK(older->Sync(IOOptions(), nullptr)) << "a record of the MANIFEST follows";
  });
  background.join();
  std::thread application(
      [&] { EXPECT_TRUE(older->Sync(IOOptions(), nullptr).IsIOFenced()) << "nothing may follow"; });
  application.join();
  EXPECT_TRUE(newest->Sync(IOOptions(), nullptr).IsIOFenced());
  older.reset();
  newest.reset();
  Close();
}

}  // namespace
}  // namespace hyperloop::plugin::testing
