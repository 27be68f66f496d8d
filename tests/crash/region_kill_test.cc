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

  // Puts from the first key that is not acknowledged on. No log is deleted meanwhile.
  int Serve() const {
    TestDatabase database(Options(), Directory());
    database.options.disable_auto_compactions = true;
    if (!database.Open().ok() || !database.db()->DisableFileDeletions().ok()) return 1;
    for (int i = acked_->load();; ++i) {
      if (!database.db()->Put({}, TestDatabase::KeyOf(i), BigValue(i)).ok()) return 2;
      acked_->store(i + 1);
      if (i % kPutsAFlush == 0 && !database.db()->Flush({}).ok()) return 3;
    }
  }
  // `restore`: the directory is lost.
  int Check(bool restore) const {
    StoreOptions options = Options();
    options.restore = options.rebind = restore;
    TestDatabase database(options, Directory());
    database.options.disable_auto_compactions = true;
    if (const rocksdb::Status opened = database.Open(); !opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.ToString().c_str());
      return 1;
    }
    for (int i = 0; i < acked_->load(); ++i) {
      if (database.Get(TestDatabase::KeyOf(i)) == BigValue(i)) continue;
      std::fprintf(stderr, "%d is missing\n", i);
      return 2;
    }
    return 0;
  }

  std::atomic<int>* acked_ = nullptr;
};

TEST_F(RegionKillTest, NothingAcknowledgedIsLost) {
  for (int life = 0; life < kLives; ++life) {
    SCOPED_TRACE(life);
    const int until = acked_->load() + kPutsALife;
    ChildProcess service = ChildProcess::Fork([&] { return Serve(); });
    ASSERT_TRUE(Eventually([&] { return acked_->load() >= until; }));
    service.Kill();
    const bool lost = life % 2 == 1;
    if (lost) fs::remove_all(Directory());
    ASSERT_EQ(ChildProcess::Fork([&] { return Check(lost); }).Wait(), 0);
  }
}

}  // namespace
}  // namespace hyperloop::test
