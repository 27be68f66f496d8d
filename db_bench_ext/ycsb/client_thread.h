// The operations of YCSB's core workloads on RocksDB, of one thread, timed.
//
// A record is one key, whose value is the concatenation of 10 fields of 100 B. As in YCSB's own
// RocksDB binding an update writes one field: it reads the record, replaces the field and puts the
// record back. Threads that update the same record at once may overwrite each other's field.
#pragma once

#include <rocksdb/db.h>

#include <array>
#include <chrono>
#include <string>

#include "measuring/latency_histogram.h"
#include "ycsb/core_workload.h"

namespace hyperloop::ycsb {

inline constexpr size_t kFields = 10, kFieldBytes = 100, kRecordBytes = kFields * kFieldBytes;

using Latencies = std::array<bench::LatencyHistogram, kOperationTypes>;  // by OperationType

class ClientThread {
 public:
  ClientThread(rocksdb::DB& db, bool sync, const CoreWorkload& workload, InsertSequence& inserts,
               uint64_t operations, uint64_t seed);

  using Clock = std::chrono::steady_clock;

  // Makes the workload's next operation; its latency counts from `start`, at which it was to be
  // issued. NotFound, Corruption: a record is missing or has another size. An operation that fails
  // is not recorded.
  rocksdb::Status RunOne(Clock::time_point start = Clock::now());
  // Inserts record `record` before any run.
  rocksdb::Status Load(uint64_t record);
  const Latencies& latencies() const { return latencies_; }

 private:
  template <class Body>
  rocksdb::Status Timed(OperationType type, Clock::time_point start, Body&& body);
  rocksdb::Status Execute(OperationType type);
  rocksdb::Status Insert(uint64_t record);
  rocksdb::Status Read(const std::string& key);
  rocksdb::Status Update(const std::string& key);
  rocksdb::Status Scan(const std::string& key, uint64_t count);
  void FillRandomly(char* at, size_t bytes);

  rocksdb::DB& db_;
  rocksdb::WriteOptions write_;
  InsertSequence& inserts_;
  Chooser chooser_;
  std::string value_;
  Latencies latencies_;
};

}  // namespace hyperloop::ycsb
