// The primary is killed at random moments; every replica must hold every acknowledged key, and
// nothing never written.
//
// One database over many kills: each round reopens the directory that the last kill left.
// HYPERLOOP_CRASH_ROUNDS sets the number of rounds, HYPERLOOP_CRASH_SEED the moments.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "crash/crash_data.h"
#include "files/export.h"
#include "support/child_process.h"
#include "support/cluster.h"

namespace hyperloop::test {
namespace {

namespace stdfs = std::filesystem;
constexpr uint32_t kThreads = 2;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.started());
    progress_path_ = cluster_.folder() + "/progress";
    int fd = ::open(progress_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, sizeof(CrashProgress)), 0);
    void* memory = mmap(nullptr, sizeof(CrashProgress), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    ASSERT_NE(memory, MAP_FAILED);
    progress_ = static_cast<CrashProgress*>(memory);
  }
  void TearDown() override {
    if (progress_ != nullptr) munmap(progress_, sizeof(CrashProgress));
  }

  // Starts the writer, lets it write for a random while, kills it. False when it never came to
  // write.
  bool WriteAndKill(bool early) {
    progress_->ready.store(0);
    std::vector<std::string> argv = {
        std::string(std::getenv("HYPERLOOP_BIN")) + "/../tests/crash_writer", cluster_.uri(),
        cluster_.folder() + "/db", progress_path_, std::to_string(kThreads)};
    if (early) argv.push_back("early");
    uint64_t before[kThreads];
    for (uint32_t t = 0; t < kThreads; ++t) before[t] = progress_->threads[t].acknowledged.load();
    ChildProcess writer = ChildProcess::Spawn(argv);
    auto writing = [&] {
      if (progress_->ready.load() == 0) return false;
      for (uint32_t t = 0; t < kThreads; ++t) {
        if (progress_->threads[t].acknowledged.load() <= before[t]) return false;
      }
      return true;
    };
    if (!Eventually(writing)) return false;
    // A random moment is what this test is about; nothing is ordered by it.
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 60000));
    writer.Kill();
    return true;
  }

  void NoteInFlight() {
    bool any = false;
    for (uint32_t t = 0; t < kThreads; ++t) {
      const uint64_t attempted = progress_->threads[t].attempted.load();
      if (attempted == progress_->threads[t].acknowledged.load()) continue;
      open_.insert({t, attempted});
      any = true;
    }
    kills_in_flight_ += any ? 1 : 0;
  }

  // What is wrong with replica i; empty when nothing is.
  std::string Check(uint32_t replica) {
    Result<std::vector<std::byte>> image = cluster_.ReplicaRegion(replica);
    if (!image.ok()) return image.status().ToString();
    const std::string directory = cluster_.folder() + "/export";
    stdfs::remove_all(directory);
    Result<ExportReport> report = ExportFiles(*image, directory);
    if (!report.ok()) return report.status().ToString();
    rocksdb::Options options;
    options.write_buffer_size = 256 << 20;
    options.avoid_flush_during_recovery = true;
    options.avoid_flush_during_shutdown = true;
    options.wal_recovery_mode = rocksdb::WALRecoveryMode::kAbsoluteConsistency;
    rocksdb::DB* opened = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
    if (!status.ok()) return "stock RocksDB cannot open the export: " + status.ToString();
    std::unique_ptr<rocksdb::DB> db(opened);
    std::string wrong = CheckKeys(*db);
    db.reset();
    stdfs::remove_all(directory);
    return wrong;
  }

  std::string CheckKeys(rocksdb::DB& db) {
    std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions()));
    it->SeekToFirst();
    for (uint32_t t = 0; t < kThreads; ++t) {
      const uint64_t attempted = progress_->threads[t].attempted.load();
      for (uint64_t number = 1; number <= attempted; ++number) {
        const std::string key = CrashKey(t, number);
        if (!it->Valid() || it->key() != key) {
          if (open_.count({t, number}) != 0) continue;  // its Put never returned
          return "acknowledged key " + key + " is missing";
        }
        if (it->value() != CrashValue(t, number))
          return "key " + key + " has a value that was never written";
        it->Next();
      }
    }
    if (it->Valid()) return "key " + it->key().ToString() + " was never written";
    return it->status().ok() ? "" : it->status().ToString();
  }

  TestCluster cluster_{3, 192ull << 20};
  std::string progress_path_;
  CrashProgress* progress_ = nullptr;
  std::set<std::pair<uint32_t, uint64_t>>
      open_;  // attempted, never acknowledged: may be there or not
  uint64_t kills_in_flight_ = 0;
  const uint64_t seed_ = FromEnvironment("HYPERLOOP_CRASH_SEED", std::random_device()());
  std::mt19937_64 random_{seed_};
};

TEST_F(CrashTest, EveryReplicaHasEveryAcknowledgedKey) {
  const uint64_t rounds = FromEnvironment("HYPERLOOP_CRASH_ROUNDS", 8);
  std::printf("seed: HYPERLOOP_CRASH_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  for (uint64_t round = 0; round < rounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_TRUE(WriteAndKill(false)) << "the writer did not open the database; its output is above";
    NoteInFlight();
    for (uint32_t replica = 0; replica < cluster_.replicas(); ++replica) {
      std::string wrong = Check(replica);
      ASSERT_EQ(wrong, "") << "replica " << replica;
    }
  }
  EXPECT_GT(2 * kills_in_flight_, rounds)
      << "too few kills had an operation in flight to prove anything";
  std::printf("%llu kills, %llu with an operation in flight, %llu keys\n",
              static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(kills_in_flight_),
              static_cast<unsigned long long>(progress_->threads[0].acknowledged.load() +
                                              progress_->threads[1].acknowledged.load()));
}

// The check above is worth something: a writer that acknowledges before the last replica did is
// caught.
TEST_F(CrashTest, AcknowledgingEarlyIsCaught) {
  std::string wrong;
  for (int round = 0; round < 6 && wrong.empty(); ++round) {
    ASSERT_TRUE(WriteAndKill(true)) << "the writer did not open the database; its output is above";
    NoteInFlight();
    for (uint32_t replica = 0; replica < cluster_.replicas() && wrong.empty(); ++replica)
      wrong = Check(replica);
  }
  EXPECT_THAT(wrong, testing::HasSubstr("is missing"));
}

}  // namespace
}  // namespace hyperloop::test
