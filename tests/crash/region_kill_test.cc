// A service is killed while logs leave the region of its group, again and again. The next opening
// finds every acknowledged write. Each process that opens the database is a child, because a forked
// one has none of RocksDB's threads.
#include <sys/mman.h>

#include <atomic>

#include "integration/whole_database_fixture.h"
#include "support/child_process.h"
#include "support/eventually.h"

namespace hyperloop::test {
namespace {

constexpr int kLives = 6;
constexpr int kPutsALife = 400;  // 25 MB, about what the data area holds
constexpr int kPutsAFlush = 32;

class RegionKillTest : public WholeDatabaseTest {
 protected:
  void SetUp() override {
    WholeDatabaseTest::SetUp();
    void* const shared =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    acked_ = new (shared) std::atomic<int>(0);
  }
  void TearDown() override { munmap(acked_, 4096); }

  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.journal_size = 4 << 20;
    options.table_capacity = 1024;
    options.space_timeout = std::chrono::seconds(60);  // however slow the machine is
    options.takeover = true;  // the former primary is dead: no need to watch whether it lives
    return options;
  }
  static std::string BigValue(int i) {
    std::string value = TestDatabase::ValueOf(i);
    value.resize(64 << 10, static_cast<char>('a' + i % 26));
    return value;
  }

  // A database with a family that no Flush is asked for while it serves. So RocksDB recovers the
  // family from logs of which most have left the region.
  struct Service {
    Service(const StoreOptions& options, const std::string& directory)
        : database(options, directory) {}
    ~Service() {
      for (rocksdb::ColumnFamilyHandle* handle : handles)
        db->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
    }
    rocksdb::Status Open() {
      if (rocksdb::Status made = database.MakeEnv(); !made.ok()) return made;
      rocksdb::Options options = database.options;
      options.env = database.env();
      options.disable_auto_compactions = true;
      options.create_missing_column_families = true;
      rocksdb::DB* opened = nullptr;
      rocksdb::Status status =
          rocksdb::DB::Open(options, database.directory(),
                            {{"default", options}, {"idle", options}}, &handles, &opened);
      db.reset(opened);
      return status;
    }
    std::string Get(size_t family, const std::string& key) const {
      std::string value;
      const rocksdb::Status status = db->Get({}, handles[family], key, &value);
      return status.ok() ? value : status.ToString();
    }
    TestDatabase database;
    std::unique_ptr<rocksdb::DB> db;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;  // default, idle
  };

  // Puts from the first key that is not acknowledged on, after an entry of the idle family. No log
  // is deleted meanwhile.
  int Serve(int life) const {
    Service service(Options(), Directory());
    if (!service.Open().ok() || !service.db->DisableFileDeletions().ok()) return 1;
    if (!service.db->Put({}, service.handles[1], "life", std::to_string(life)).ok()) return 4;
    for (int i = acked_->load();; ++i) {
      if (!service.db->Put({}, TestDatabase::KeyOf(i), BigValue(i)).ok()) return 2;
      acked_->store(i + 1);
      if (i % kPutsAFlush == 0 && !service.db->Flush({}).ok()) return 3;
    }
  }
  // `restore`: the directory is lost.
  int Check(int life, bool restore) const {
    StoreOptions options = Options();
    options.restore = options.rebind = restore;
    Service service(options, Directory());
    if (const rocksdb::Status opened = service.Open(); !opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.ToString().c_str());
      return 1;
    }
    for (int i = 0; i < acked_->load(); ++i) {
      if (service.Get(0, TestDatabase::KeyOf(i)) == BigValue(i)) continue;
      std::fprintf(stderr, "%d is missing\n", i);
      return 2;
    }
    if (const std::string got = service.Get(1, "life"); got != std::to_string(life)) {
      std::fprintf(stderr, "the idle family lost its entry: %s\n", got.c_str());
      return 3;
    }
    return service.db->Flush({}, service.handles[1]).ok() ? 0 : 4;
  }
  bool HasLeft() const {
    for (const auto& entry : fs::recursive_directory_iterator(FilesOfReplica(0)))
      if (entry.path().string().find(".log@") != std::string::npos) return true;
    return false;
  }

  std::atomic<int>* acked_ = nullptr;
};

TEST_F(RegionKillTest, NothingAcknowledgedIsLost) {
  bool left = false;
  for (int life = 0; life < kLives; ++life) {
    SCOPED_TRACE(life);
    const int until = acked_->load() + kPutsALife;
    ChildProcess service = ChildProcess::Fork([&] { return Serve(life); });
    ASSERT_TRUE(Eventually([&] { return acked_->load() >= until; }));
    service.Kill();
    left = left || HasLeft();
    const bool lost = life % 2 == 1;
    if (lost) fs::remove_all(Directory());
    ASSERT_EQ(ChildProcess::Fork([&] { return Check(life, lost); }).Wait(), 0);
  }
  EXPECT_TRUE(left) << "no log left the region";
}

}  // namespace
}  // namespace hyperloop::test
