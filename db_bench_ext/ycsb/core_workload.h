// YCSB's core workloads A to F choose the next operation and its record (Cooper et al. 2010, table
// 2; the parameters are those of the workload files that YCSB ships).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "hyperloop/core/mutex.h"
#include "ycsb/generators.h"

namespace hyperloop::ycsb {

enum class OperationType { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
inline constexpr size_t kOperationTypes = 5;
// "read", "update", "insert", "scan", "read-modify-write".
std::string_view TypeName(OperationType type);

enum class RequestDistribution { kZipfian, kLatest };

struct CoreWorkload {
  char name;
  std::array<double, kOperationTypes> shares;  // by OperationType; their sum is 1
  RequestDistribution distribution;
};
// A single letter, either case; empty: no such workload.
std::optional<CoreWorkload> FindWorkload(std::string_view name);

inline constexpr uint64_t kMaxScan = 100;  // scans take 1 to this many records, uniformly

// A record's key: "user" and its hashed number, so that insertion order is not key order.
std::string KeyOf(uint64_t record);

// The numbers of records that a run inserts, behind the loaded ones. Thread safe.
class InsertSequence {
 public:
  explicit InsertSequence(uint64_t loaded) : next_(loaded), complete_(loaded) {}
  uint64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }
  // `record` is in the database now.
  void Acknowledge(uint64_t record);
  // The number of records without a gap: all records with lower numbers are in the database.
  uint64_t complete() const { return complete_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> complete_;  // pairs: stored by Acknowledge, after the record
  Mutex mutex_;
  std::set<uint64_t> ahead_ HL_GUARDED_BY(mutex_);  // acknowledged above complete_
};

// One thread's choices.
class Chooser {
 public:
  // `inserts` outlives it and may be shared. `operations`: of the whole run, of which a part may be
  // inserts.
  Chooser(const CoreWorkload& workload, const InsertSequence& inserts, uint64_t operations,
          uint64_t seed);
  OperationType NextType();
  // A record that is in the database.
  uint64_t NextRecord();
  uint64_t NextScanLength() { return 1 + UniformBelow(random_, kMaxScan); }
  Random& random() { return random_; }

 private:
  const CoreWorkload workload_;
  const InsertSequence& inserts_;
  Random random_;
  std::variant<ScrambledZipfian, Latest> records_;
};

}  // namespace hyperloop::ycsb
