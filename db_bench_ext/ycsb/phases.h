// The two phases of a YCSB run, over several threads: loading the records, then the operations.
#pragma once

#include <rocksdb/db.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "ycsb/client_thread.h"

namespace hyperloop::ycsb {

struct PhaseOptions {
  CoreWorkload workload{};
  uint64_t records = 0;  // at least 2
  uint64_t operations = 0;
  double max_seconds = 0;  // of a run, which then ends before all operations are done; 0: no end
  // Operations a second that a run offers, over all threads (open loop): the n-th is to be issued
  // n / rate seconds after the run began, and its latency counts from then, whether a thread was
  // free or not. 0: each thread issues one when the one before is done (closed loop).
  double rate = 0;
  uint32_t threads = 1;
  uint64_t seed = 1;
  bool sync = false;
};

struct PhaseReport {
  const char* name = "";    // "load", "run"
  uint64_t operations = 0;  // that were done
  double seconds = 0;
  Latencies latencies;
};

// Called four times a second, and at the end, in the calling thread.
using Progress = std::function<void(const char* phase, uint64_t done, uint64_t total)>;

// Both stop at the first operation that fails and return its status, with the phase in the message;
// Aborted if `interrupted` is set. All threads have ended when they return.
rocksdb::Status LoadPhase(rocksdb::DB& db, const PhaseOptions& options,
                          const std::atomic<bool>& interrupted, const Progress& progress,
                          PhaseReport* report);
// `inserts` begins at `records`, and goes on from one run to the next on the same database.
// NotFound: the database holds fewer than `records` records.
rocksdb::Status RunPhase(rocksdb::DB& db, const PhaseOptions& options, InsertSequence& inserts,
                         const std::atomic<bool>& interrupted, const Progress& progress,
                         PhaseReport* report);

}  // namespace hyperloop::ycsb
