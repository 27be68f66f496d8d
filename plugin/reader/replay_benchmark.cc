// Measures how long RocksDB takes to make its memtable from the logs that a promotion hands over,
// beside a follower whose memtable stands ready.
//
//   replay_benchmark DIRECTORY [MIB…]
//
// For each size (default: 64 256 1024) it writes a database in a new folder of DIRECTORY, with that
// much log and no table, 16 B keys in random order and values of 1,000 B. A secondary instance of
// RocksDB follows the log, a MiB behind at most. Then the database is closed and opened again. Only
// RocksDB works here: a promoted directory is an ordinary one. Everything is read from the page
// cache.
#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kValueBytes = 1000;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void Must(const rocksdb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "replay_benchmark: %s\n", status.ToString().c_str());
  std::exit(1);
}

// One memtable holds everything.
rocksdb::Options OptionsFor(uint64_t bytes) {
  rocksdb::Options options;
  options.create_if_missing = options.error_if_exists = true;
  options.write_buffer_size = 4 * bytes;
  options.db_write_buffer_size = 0;
  options.max_total_wal_size = 8 * bytes;
  options.compression = rocksdb::kNoCompression;
  options.avoid_flush_during_shutdown = true;
  options.avoid_flush_during_recovery = true;
  options.max_open_files = -1;  // a secondary instance needs it
  return options;
}

std::unique_ptr<rocksdb::DB> Open(const rocksdb::Options& options, const std::string& path) {
  rocksdb::DB* db = nullptr;
  Must(rocksdb::DB::Open(options, path, &db));
  return std::unique_ptr<rocksdb::DB>(db);
}

std::string KeyOf(std::mt19937_64& random) {
  char key[17];
  std::snprintf(key, sizeof key, "%016llx", static_cast<unsigned long long>(random()));
  return key;
}

struct Replay {
  double catch_up_ms = 0;        // of the follower, over the last MiB
  double open_ms = 0;            // to a memtable
  double open_and_flush_ms = 0;  // to a table, as RocksDB does by default
};

// Fills the database, and returns how long the follower took for the last MiB.
double FillAndFollow(const rocksdb::Options& options, const std::string& path, uint64_t bytes) {
  const std::unique_ptr<rocksdb::DB> db = Open(options, path);
  rocksdb::DB* opened = nullptr;
  Must(rocksdb::DB::OpenAsSecondary(options, path, path + ".follower", &opened));
  const std::unique_ptr<rocksdb::DB> follower(opened);
  std::mt19937_64 random(1);
  std::string key, value(kValueBytes, 'v');
  double last = 0;
  for (uint64_t written = 0, next = kMiB; written < bytes; written += key.size() + value.size()) {
    key = KeyOf(random);
    Must(db->Put({}, key, value));
    if (written < next) continue;
    next += kMiB;
    const Clock::time_point start = Clock::now();
    Must(follower->TryCatchUpWithPrimary());
    last = MillisecondsSince(start);
  }
  Must(follower->TryCatchUpWithPrimary());
  Must(follower->Get({}, key, &value));
  return last;
}

double OpenTime(const rocksdb::Options& options, const std::string& path) {
  const Clock::time_point start = Clock::now();
  const std::unique_ptr<rocksdb::DB> db = Open(options, path);
  return MillisecondsSince(start);
}

Replay Measure(const std::string& folder, uint64_t bytes) {
  const std::string path = folder + "/replay-" + std::to_string(bytes / kMiB);
  rocksdb::Options options = OptionsFor(bytes);
  Replay replay;
  replay.catch_up_ms = FillAndFollow(options, path, bytes);
  options.error_if_exists = false;
  replay.open_ms = OpenTime(options, path);
  options.avoid_flush_during_recovery = false;
  replay.open_and_flush_ms = OpenTime(options, path);
  std::filesystem::remove_all(path);
  std::filesystem::remove_all(path + ".follower");
  return replay;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: replay_benchmark DIRECTORY [MIB...]\n");
    return 2;
  }
  std::vector<uint64_t> sizes = {64, 256, 1024};
  if (argc > 2) sizes.clear();
  for (int i = 2; i < argc; ++i) {
    sizes.push_back(std::strtoull(argv[i], nullptr, 10));
    if (sizes.back() == 0 || sizes.back() > 8192) {
      std::fprintf(stderr, "replay_benchmark: \"%s\" is no size from 1 to 8192 MiB\n", argv[i]);
      return 2;
    }
  }
  std::printf("%8s %22s %22s %24s\n", "log, MiB", "open to memtable, ms", "open and flush, ms",
              "follower, last MiB, ms");
  for (const uint64_t size : sizes) {
    const Replay replay = Measure(argv[1], size * kMiB);
    std::printf("%8llu %22.0f %22.0f %24.1f\n", static_cast<unsigned long long>(size),
                replay.open_ms, replay.open_and_flush_ms, replay.catch_up_ms);
    std::fflush(stdout);
  }
}
