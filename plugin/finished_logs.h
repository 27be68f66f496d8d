// FinishedLogs: which logs RocksDB has written to for the last time.
//
// RocksDB begins a log after the last write to the one before. It may write out what it buffered of
// the former log in between, so a log counts as begun with its first bytes. With ack=append and
// without manual_wal_flush nothing is ever written to, or given up of, an older log after that.
// Otherwise an older log is finished once RocksDB has synced or closed it: a sync that fails gives
// up bytes that no earlier one confirmed, and buffered bytes may follow.
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

// Not thread safe. Each call returns the logs that are finished since, each of them once.
class FinishedLogs {
 public:
  using Files = std::vector<FileId>;
  // A log that was made, or found by the opening. `synced`: whether all its bytes are synced, so
  // that none will be given up; called until Closed.
  void Made(uint64_t number, FileId file, std::function<bool()> synced = nullptr) {
    logs_[number] = {file, false, std::move(synced)};
  }
  // Its first bytes were written. `by_next`: an older log is finished even if it is not closed.
  Files Began(uint64_t number, bool by_next);
  // It was closed; or it was synced after a newer log was begun.
  Files Closed(uint64_t number);

 private:
  struct Log {
    FileId file = 0;
    bool closed = false;
    std::function<bool()> synced;
  };
  Files Take(bool by_next);

  std::map<uint64_t, Log> logs_;  // those that are not finished, by number
  uint64_t begun_ = 0;            // the newest log that has bytes
};

}  // namespace hyperloop::plugin
