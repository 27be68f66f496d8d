// Appends to a replicated log file, as RocksDB makes them: through the journal, with all work that
// the plugin does below FSWritableFile::Append.
#pragma once

#include <atomic>
#include <string>

#include "hyperloop/replication/store.h"
#include "primitives/case.h"

namespace hyperloop::bench {

// With a window of 1 each append is awaited before the next, as for RocksDB's writes with the
// default ack=append. With a window of W every W appends are awaited together, as for a batch of
// writes with ack=sync. An append's latency ends with the wait that covers it.
class AppendWorkload {
 public:
  // `store` must be taken. The other arguments are those of Workload.
  AppendWorkload(Store& store, const Case& load, const std::atomic<bool>& interrupted,
                 Progress progress);

  // Makes the log file; then the warm-up. kNoSpace: an append is greater than half of the room for
  // log files.
  Status Prepare();
  // A full log file is sometimes replaced by a new one, as RocksDB does when a memtable is flushed.
  // No append's latency includes that.
  Result<Measurement> Run();
  // Removes the log file.
  Status Finish();

 private:
  Result<Measurement> Loop(uint64_t number, double seconds, bool report);
  Status NewFile();

  Store& store_;
  const Case case_;
  const std::atomic<bool>& interrupted_;
  const Progress progress_;
  const std::string data_;
  FileId file_ = 0;
  uint64_t written_ = 0,
           longest_ = 0;  // bytes of the log file, and the size at which it is replaced
};

}  // namespace hyperloop::bench
