// Measures how long a commit takes while RocksDB compacts, with and without the traffic of the
// compaction's tables to the replicas.
//
//   compaction_benchmark URI DIRECTORY [ROUNDS [COMMITS-A-SECOND [MIB]]]
//
// One database is replicated by the group of URI, the other one is an ordinary one beside it. Both
// have the same tables of MIB (default: 256), incompressible, which a compaction writes anew as a
// whole. One thread commits 1,000 B to the replicated database at a constant rate (default: 1,000 a
// second) in three parts of each round (default: 5): while nobody compacts, while the ordinary
// database compacts, and while the replicated one does. So the last two parts differ by what the
// replicas receive, and write. A commit's latency counts from the time at which it was due.
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/plugin/register.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kCommitBytes = 1000, kValueBytes = 4000;
constexpr int kTables = 8;
constexpr std::chrono::seconds kPart{4};  // each part of a round takes so long at least

void Must(const rocksdb::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "compaction_benchmark: %s\n", status.ToString().c_str());
  std::exit(1);
}

// A database with one family for commits, which are never flushed, and one for tables.
class Database {
 public:
  Database(rocksdb::Env* env, const std::string& path) {
    rocksdb::DBOptions options;
    options.env = env;
    options.create_if_missing = options.create_missing_column_families = true;
    options.error_if_exists = true;  // a database that was filled before has other tables
    options.avoid_flush_during_shutdown = true;
    options.max_background_jobs = 2;
    rocksdb::ColumnFamilyOptions family;
    family.write_buffer_size = 256 * kMiB;
    family.compression = rocksdb::kNoCompression;
    family.disable_auto_compactions = true;
    rocksdb::DB* db = nullptr;
    Must(rocksdb::DB::Open(options, path,
                           {{rocksdb::kDefaultColumnFamilyName, family}, {"tables", family}},
                           &families_, &db));
    db_.reset(db);
  }
  ~Database() {
    for (rocksdb::ColumnFamilyHandle* each : families_) db_->DestroyColumnFamilyHandle(each);
  }

  void Fill(uint64_t bytes) {
    std::mt19937_64 random(1);
    rocksdb::WriteOptions unlogged;
    unlogged.disableWAL = true;
    std::string value(kValueBytes, '\0');
    for (int table = 0; table < kTables; ++table) {
      for (uint64_t written = 0; written < bytes / kTables; written += kValueBytes) {
        for (size_t at = 0; at < value.size(); at += sizeof(uint64_t)) {
          const uint64_t number = random();
          value.replace(at, sizeof number, reinterpret_cast<const char*>(&number), sizeof number);
        }
        Must(db_->Put(unlogged, families_[1], std::to_string(random()), value));
      }
      Must(db_->Flush({}, families_[1]));
    }
  }
  void Commit(uint64_t number, const std::string& value) {
    rocksdb::WriteOptions sync;
    sync.sync = true;
    Must(db_->Put(sync, families_[0], std::to_string(number % 1000), value));
  }
  // Writes all tables anew, again and again.
  void Compact() {
    rocksdb::CompactRangeOptions options;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    for (const auto until = Clock::now() + kPart; Clock::now() < until;)
      Must(db_->CompactRange(options, families_[1], nullptr, nullptr));
  }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
};

// What commits took, in microseconds, and for how long they were made.
struct Part {
  std::vector<double> latencies;
  double seconds = 0;
  double At(double quantile) const {
    return latencies[static_cast<size_t>(quantile * static_cast<double>(latencies.size() - 1))];
  }
};

// Commits at `rate` a second while `meanwhile` runs.
template <class Meanwhile>
Part CommitDuring(Database& database, double rate, Meanwhile meanwhile) {
  std::atomic<bool> done{false};
  Part part;
  const Clock::time_point started = Clock::now();
  std::thread other([&] {
    meanwhile();
    done = true;
  });
  const std::string value(kCommitBytes, 'c');
  for (uint64_t number = 0; !done; ++number) {
    const auto due =
        started + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(static_cast<double>(number) / rate));
    std::this_thread::sleep_until(due);
    database.Commit(number, value);
    part.latencies.push_back(std::chrono::duration<double, std::micro>(Clock::now() - due).count());
  }
  other.join();
  part.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  std::ranges::sort(part.latencies);
  return part;
}

constexpr std::array<const char*, 3> kParts{"nobody compacts", "compaction, not replicated",
                                            "compaction, replicated"};

void Print(const std::string& round, const char* name, const Part& part) {
  std::printf("%5s  %-27s %8.1f %9zu %9.0f %9.0f %9.0f %9.0f\n", round.c_str(), name, part.seconds,
              part.latencies.size(), part.At(0.5), part.At(0.95), part.At(0.99), part.At(1));
  std::fflush(stdout);
}

void Add(const Part& part, Part* sum) {
  sum->latencies.insert(sum->latencies.end(), part.latencies.begin(), part.latencies.end());
  sum->seconds += part.seconds;
}

// The quantiles over all rounds are those of all commits, not means of the rounds' quantiles.
void Measure(Database& replicated, Database& ordinary, int rounds, double rate) {
  std::printf("%5s  %-27s %8s %9s %9s %9s %9s %9s\n", "round", "meanwhile", "seconds", "commits",
              "p50, us", "p95, us", "p99, us", "max, us");
  std::array<Part, kParts.size()> all;
  for (int round = 1; round <= rounds; ++round) {
    const std::array<Part, kParts.size()> parts{
        CommitDuring(replicated, rate, [] { std::this_thread::sleep_for(kPart); }),
        CommitDuring(replicated, rate, [&] { ordinary.Compact(); }),
        CommitDuring(replicated, rate, [&] { replicated.Compact(); })};
    for (size_t i = 0; i < parts.size(); ++i) {
      Print(std::to_string(round), kParts[i], parts[i]);
      Add(parts[i], &all[i]);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    std::ranges::sort(all[i].latencies);
    Print("all", kParts[i], all[i]);
  }
  std::printf("\np99 of the compaction that is replicated / of the other one: %.2f\n",
              all[2].At(0.99) / all[1].At(0.99));
}

double NumberOf(const char* text, double least, double most) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (*end == '\0' && number >= least && number <= most) return number;
  std::fprintf(stderr, "compaction_benchmark: \"%s\" is no number from %g to %g\n", text, least,
               most);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 6) {
    std::fprintf(stderr,
                 "usage: compaction_benchmark URI DIRECTORY [ROUNDS [COMMITS-A-SECOND [MIB]]]\n");
    return 2;
  }
  const int rounds = argc > 3 ? static_cast<int>(NumberOf(argv[3], 1, 1000)) : 5;
  const double rate = argc > 4 ? NumberOf(argv[4], 1, 1e6) : 1000;
  const auto bytes = static_cast<uint64_t>(argc > 5 ? NumberOf(argv[5], 8, 65536) : 256) * kMiB;
  // The library registers itself when it is loaded; naming it keeps the linker from leaving it out.
  register_hyperloop(*rocksdb::ObjectLibrary::Default(), "");
  rocksdb::Env* env = nullptr;
  std::shared_ptr<rocksdb::Env> owned;
  rocksdb::ConfigOptions config;
  config.ignore_unsupported_options = false;
  Must(rocksdb::Env::CreateFromUri(config, "", argv[1], &env, &owned));
  const std::string directory = argv[2];
  Must(rocksdb::Env::Default()->CreateDirIfMissing(directory));
  Database replicated(env, directory + "/replicated");
  Database ordinary(rocksdb::Env::Default(), directory + "/ordinary");
  replicated.Fill(bytes);
  ordinary.Fill(bytes);
  // The first compaction merges the tables, each later one does the same work again.
  replicated.Compact();
  ordinary.Compact();
  Measure(replicated, ordinary, rounds, rate);
}
