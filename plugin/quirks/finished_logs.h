// FinishedLogs: which logs and MANIFESTs RocksDB has written to for the last time.
//
// RocksDB begins a log after the last write to the one before has returned, with its sync. It may
// write out what it buffered of the former log in between (manual_wal_flush), but it does that
// before it gives the new one any batch. So a log is finished once a newer one has its first bytes:
// nothing is written to it any more, and nothing of it given up.
//
// The newest log is never finished: the next opening of the database may truncate it.
//
// Thread safe. A `followed` is called under a lock, and never after Gone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

class FinishedLogs {
 public:
  // `finish` is told of each file that is finished.
  explicit FinishedLogs(std::function<void(FileId)> finish) : finish_(std::move(finish)) {}

  // What an opening found: all logs but the newest are finished.
  void Found(const std::vector<FileInfo>& files);
  // CURRENT names the MANIFEST of this number: older ones are finished.
  void FoundCurrent(uint64_t manifest, const std::vector<FileInfo>& files);

  // A log was made. `followed` is called once a newer log has bytes, and returns whether the bytes
  // of this one stay as they are. One of which it returns false is never finished. Without it they
  // stay.
  void Made(uint64_t number, FileId file, std::function<bool()> followed = nullptr);
  // Its first bytes were written. That finishes the older logs.
  void Began(uint64_t number);
  // The `followed` of this log must not be called any more, because `stays` is known.
  void Gone(uint64_t number, bool stays);

 private:
  struct Log {
    FileId file = 0;
    std::function<bool()> followed;
  };

  const std::function<void(FileId)> finish_;
  Mutex mutex_;
  // Those that no newer one follows, by number.
  std::map<uint64_t, Log> logs_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
