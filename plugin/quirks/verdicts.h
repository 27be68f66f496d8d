// Verdicts: which error RocksDB gets of a bound directory, and whether it may resume from it.
//
// RocksDB 7.8.3 resumes by itself from a retryable error: it flushes its memtables and goes on with
// a new log. Some failures must not be followed by that. After them the database must be reopened,
// and no error is retryable any more. That is so once a log and a change of the MANIFEST have both
// failed, because RocksDB would go on with the same log; and whenever MustReopen was called.
//
// Thread safe. All but WaitFor cost a few atomic operations.
#pragma once

#include <rocksdb/io_status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/decisions.h"

namespace hyperloop::plugin {

class Verdicts {
 public:
  // `patience`: no change is in flight for longer.
  Verdicts(std::shared_ptr<Decisions> decisions, std::chrono::nanoseconds patience);
  Verdicts(const Verdicts&) = delete;
  Verdicts& operator=(const Verdicts&) = delete;

  Decisions& decisions() { return *decisions_; }
  // Counts a change as in flight: from the call to the group until it is decided which error
  // RocksDB gets, or that it gets none.
  class InFlight {
   public:
    explicit InFlight(Verdicts& verdicts)
        : decisions_(verdicts.decisions_.get()), begun_(decisions_->Begin()) {}
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() { Decided(); }
    // RocksDB gets no error. `record`: the last one of the change.
    void Stands(uint64_t record) { decisions_->Stands(begun_, record); }
    void Decided() {
      if (decisions_ != nullptr) decisions_->End();
      decisions_ = nullptr;
    }

   private:
    Decisions* decisions_;
    const uint64_t begun_;
  };

  // Returns `error` as RocksDB should get it. If RocksDB 7.8.3 gets two errors of one outage, of
  // which one asks it to resume and the other one tells it not to, DB::Close can hang, whichever
  // comes first. So a retryable error waits here until the changes in flight are decided. It is no
  // longer retryable if the database must be reopened by then. The caller must not hold an
  // InFlight.
  rocksdb::IOStatus WaitFor(rocksdb::IOStatus error) const;
  // The same for an error of the Store.
  rocksdb::IOStatus WaitFor(const Status& error, std::string_view context) const;
  // RocksDB was told that this database must be reopened.
  void MustReopen() { must_reopen_.store(true, std::memory_order_release); }

  // RocksDB has made a log.
  void NoteLogMade() { log_failed_.store(false); }
  // The last write of a log failed. Returns whether a change of the MANIFEST failed before, and
  // none has succeeded since.
  bool NoteLogFailed();
  // A change of the MANIFEST failed. RocksDB may resume from that and keep the log that it has.
  // True: that log has failed too, so that the database must be reopened.
  bool NoteManifestFailed();
  // An append to a MANIFEST succeeded.
  void NoteManifestWritten() { manifest_failed_.store(false, std::memory_order_release); }
  bool manifest_failed() const { return manifest_failed_.load(); }

  // The database has manual_wal_flush: its memtables may hold batches that are in no log yet.
  void NoteManualFlush() { manual_flush_.store(true, std::memory_order_relaxed); }
  bool manual_flush() const { return manual_flush_.load(std::memory_order_relaxed); }

  // Notes that this thread has appended to a log. Appends to logs follow one another.
  void NoteAppended(uint64_t log_number);
  // Whether RocksDB need not be told that a sync of this log failed, because its next call fails
  // for the same reason. That is so for a log that is older than the one appended to last, if the
  // caller is
  // - the thread that appended last: RocksDB syncs the newer log next, in the same write or
  //   SyncWAL;
  // - a background thread of RocksDB: it syncs older logs before a flush, and then appends to the
  //   MANIFEST a record that is behind their bytes in the log lane.
  bool IsToldByAnother(uint64_t log_number) const;

 private:
  const std::shared_ptr<Decisions> decisions_;
  const std::chrono::nanoseconds patience_;
  std::atomic<bool> must_reopen_{false}, manual_flush_{false};
  // A log and a MANIFEST each set their own flag before they read the other's. So if both fail at
  // the same time, at least one of them finds the other's flag set.
  std::atomic<bool> log_failed_{false}, manifest_failed_{false};
  // Of the last append to a log: the thread's mark is written before the number, and read after it.
  std::atomic<const void*> appender_{nullptr};
  std::atomic<uint64_t> appended_log_{0};
};

}  // namespace hyperloop::plugin
