// FinishedLogs: which logs RocksDB has written to for the last time.
//
// RocksDB begins a log after the last write to the one before has returned, with its sync. It may
// write out what it buffered of the former log in between (manual_wal_flush), but it does that
// before it gives the new one any batch. So a log is finished once a newer one has its first bytes:
// nothing is written to it any more, and nothing of it given up.
//
// The newest log is never finished: the next opening of the database may truncate it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Not thread safe.
class FinishedLogs {
 public:
  using Files = std::vector<FileId>;
  // A log that was made, or found by the opening. `followed` is called once a newer log has bytes,
  // and returns whether the bytes of this one stay as they are. One of which it returns false is
  // never finished. Without it they stay.
  void Made(uint64_t number, FileId file, std::function<bool()> followed = nullptr) {
    logs_[number] = {file, std::move(followed)};
  }
  // Its first bytes were written. Returns the logs that are finished by that, each of them once.
  Files Began(uint64_t number);
  // The `followed` of this log must not be called any more, because `stays` is known.
  void Gone(uint64_t number, bool stays);

 private:
  struct Log {
    FileId file = 0;
    std::function<bool()> followed;
  };

  std::map<uint64_t, Log> logs_;  // those that no newer one follows, by number
};

}  // namespace hyperloop::plugin
