// A writer process over a real cluster that is killed, and the keys that a checker knows to be
// acknowledged to it, or under way.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "crash/crash_data.h"
#include "files/export.h"
#include "support/child_process.h"
#include "support/cluster.h"

namespace hyperloop::test {

inline constexpr uint32_t kCrashThreads = 2;

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class CrashTest : public testing::Test {
 protected:
  // `region_size` bounds the amount of writing; a larger region takes longer to check.
  explicit CrashTest(uint64_t region_size = 192ull << 20) : cluster_(3, region_size) {}
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

  // Starts the writer, and returns once each of its threads got a key acknowledged; without a
  // process if that never happens.
  ChildProcess StartWriter(bool early) {
    progress_->ready.store(0);
    std::vector<std::string> argv = {
        std::string(std::getenv("HYPERLOOP_BIN")) + "/../tests/crash_writer",
        cluster_.uri() + "&datapath=" + std::string(DatapathName(datapath_)), database(),
        progress_path_, std::to_string(kCrashThreads)};
    if (early) argv.push_back("early");
    uint64_t before[kCrashThreads];
    for (uint32_t t = 0; t < kCrashThreads; ++t)
      before[t] = progress_->threads[t].acknowledged.load();
    ChildProcess writer = ChildProcess::Spawn(argv);
    auto writing = [&] {
      if (progress_->ready.load() == 0) return false;
      for (uint32_t t = 0; t < kCrashThreads; ++t) {
        if (progress_->threads[t].acknowledged.load() <= before[t]) return false;
      }
      return true;
    };
    if (!Eventually(writing)) return {};
    return writer;
  }

  // Starts the writer, lets it write for a random time, and kills it. False if it never wrote.
  bool WriteAndKill() {
    ChildProcess writer = StartWriter(false);
    if (writer.pid() < 0) return false;
    // The sleep chooses the random moment that this test needs; it orders nothing.
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 60000));
    writer.Kill();
    NoteInFlight();
    return true;
  }

  // Empties the group and forgets the database. What hyperloopctl said when it failed; else empty.
  std::string StartAnew() {
    for (CrashProgress::Thread& thread : progress_->threads) {
      thread.attempted.store(0);
      thread.acknowledged.store(0);
    }
    open_.clear();
    std::filesystem::remove_all(database());
    return cluster_.Reset();
  }

  void NoteInFlight() {
    bool any = false;
    for (uint32_t t = 0; t < kCrashThreads; ++t) {
      const uint64_t attempted = progress_->threads[t].attempted.load();
      if (attempted == progress_->threads[t].acknowledged.load()) continue;
      open_.insert({t, attempted});
      any = true;
    }
    kills_in_flight_ += any ? 1 : 0;
  }

  // Says what is wrong with replica i; empty: nothing.
  std::string Check(uint32_t replica) {
    Result<std::vector<std::byte>> image = cluster_.ReplicaRegion(replica);
    if (!image.ok()) return image.status().ToString();
    const std::string directory = cluster_.folder() + "/export";
    std::filesystem::remove_all(directory);
    Result<ExportReport> report = ExportFiles(*image, directory);
    if (!report.ok()) return report.status().ToString();
    rocksdb::Options options;
    options.write_buffer_size = 256 << 20;
    options.avoid_flush_during_recovery = true;
    options.avoid_flush_during_shutdown = true;
    // RocksDB appends a value of more than 1 MiB in pieces. A kill between them leaves a log that
    // ends within a record, which this mode drops, as every reopen does. CheckKeys notices if it
    // drops any other record.
    options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
    rocksdb::DB* opened = nullptr;
    rocksdb::Status status = rocksdb::DB::Open(options, directory, &opened);
    if (!status.ok()) return "stock RocksDB cannot open the export: " + status.ToString();
    std::unique_ptr<rocksdb::DB> db(opened);
    std::string wrong = CheckKeys(*db);
    db.reset();
    std::filesystem::remove_all(directory);
    return wrong;
  }

  std::string CheckKeys(rocksdb::DB& db) {
    std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(rocksdb::ReadOptions()));
    it->SeekToFirst();
    for (uint32_t t = 0; t < kCrashThreads; ++t) {
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

  std::string database() const { return cluster_.folder() + "/db"; }

  Datapath datapath_ = Datapath::kOffload;
  TestCluster cluster_;
  std::string progress_path_;
  CrashProgress* progress_ = nullptr;
  std::set<std::pair<uint32_t, uint64_t>>
      open_;  // attempted, never acknowledged: may be there or not
  uint64_t kills_in_flight_ = 0;
  const uint64_t seed_ = FromEnvironment("HYPERLOOP_CRASH_SEED", std::random_device()());
  std::mt19937_64 random_{seed_};
};

}  // namespace hyperloop::test
