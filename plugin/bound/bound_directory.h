// BoundDirectory: one database directory and the group it is bound to, from LockFile to UnlockFile.
//
// Every call of the plugin that uses the group's files goes through here, which keeps two rules:
// - A failed Append may have added bytes to the group's file, which are called a tail here. Before
//   anything else is written, the file is truncated to what RocksDB knows to be in it. RocksDB
//   gives the sequence numbers of the failed batch to the next one, so a recovery must never replay
//   both. A truncation takes a record. While the group has no room for it, only removals, look-ups
//   and syncs are allowed: removals make room, and the others add nothing.
// - Every call fails in a forked child, except Close, which does nothing there.
// Only the Store knows whether the group is broken, fenced or being brought back.
//
// Thread safe. Append costs two atomic loads, the count of writes in flight and the Store's own
// call. It takes no lock and allocates nothing.
#pragma once

#include <rocksdb/io_status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "quirks/finished_logs.h"

namespace hyperloop::plugin {

class BoundDirectory {
 public:
  // `directory` is spelled as RocksDB spells it. `store` has taken its group, with `decisions`.
  BoundDirectory(std::string directory, std::unique_ptr<ForkDetector> fork_detector,
                 std::unique_ptr<Store> store, std::shared_ptr<Decisions> decisions,
                 std::shared_ptr<Log> log);
  BoundDirectory(const BoundDirectory&) = delete;
  BoundDirectory& operator=(const BoundDirectory&) = delete;

  const std::string& directory() const { return directory_; }
  Log& log() { return *log_; }
  // For calls that change nothing: Read, options, statistics.
  Store& store() { return *store_; }
  // kFenced in a forked child, which must change nothing.
  Status CheckNotForked() const;
  bool InForkedChild() const { return !fork_detector_->IsOwner(); }

  // Returns the path relative to the directory, or an empty text if it is not in the directory.
  std::string RelativeName(const std::string& path) const;
  // Whether `path` is the directory itself, in any spelling.
  bool IsDirectory(const std::string& path) const;

  // These are the Store's calls under the rules above. Their errors are the Store's, kFenced in a
  // forked child, and that of a tail which cannot be truncated now.
  Result<FileId> Create(std::string_view name);
  Result<FileId> Lookup(std::string_view name);
  Result<std::vector<FileInfo>> Files();
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end);
  Status Await(AppendTicket ticket);
  Status Sync();
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  // Ok also if the group does not have the file.
  Status Remove(std::string_view name);
  // As Store. A file that could not be listed is one of Unlisted from then on.
  Status ListFile(const WholeFile& file);
  Status AwaitFiles(Holders holders);
  Status Close();

  // Logs that RocksDB makes, and writes to for the first time. Those that are finished by that may
  // leave the region (Store::Finish). As FinishedLogs.
  void NoteLogMade(uint64_t number, FileId file, std::function<bool()> followed = nullptr);
  void NoteLogBegun(uint64_t number);
  void NoteLogGone(uint64_t number, bool stays);
  // What the opening found: all logs but the newest are finished, and all MANIFESTs that are older
  // than `manifest`, the number of the one that CURRENT names.
  void NoteFoundLogs(const std::vector<FileInfo>& files);
  void NoteCurrent(uint64_t manifest, const std::vector<FileInfo>& files);

  // Gives up what the group may hold of `file` beyond `size` bytes. RocksDB was told that writing
  // these bytes failed.
  void AbandonTail(FileId file, uint64_t size);

  // Files of the directory that are to be listed and are not. RocksDB does not look at every error
  // of a Close, so it may name such a file in the MANIFEST: they must be listed before that.
  // ListFile and Remove take a file out again.
  void NoteUnlisted(std::string_view name);
  void NoteListed(std::string_view name);
  std::vector<std::string> Unlisted() const;
  // ListFile, unless the file is not one of Unlisted any more: another thread has removed it.
  Status ListIfUnlisted(const WholeFile& file);

  // Remembers the log-lane files that the opening removed. RocksDB may have listed them before it
  // locked the directory, as DestroyDB does, and deleting them must not fail.
  void NoteVanished(std::vector<std::string> names);
  // Whether `name` is one of them. True once for each name.
  bool TakeVanished(std::string_view name);

  // Logs `message` at the first call with this `once` flag.
  void WarnOnce(std::atomic<bool>& once, std::string_view message);
  std::atomic<bool> warned_outside{false}, warned_space{false}, warned_manual_flush{false},
      warned_recycling{false}, warned_manifest{false}, warned_compression{false},
      warned_unchecked{false}, warned_deleted{false};
  // The database has manual_wal_flush: its memtables may hold batches that are in no log yet.
  std::atomic<bool> manual_wal_flush{false};
  // Counts a change as in flight: from the call to the group until it is decided which error
  // RocksDB gets, or that it gets none.
  class InFlight {
   public:
    explicit InFlight(BoundDirectory& directory)
        : decisions_(directory.decisions_.get()), begun_(decisions_->Begin()) {}
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
  Decisions& decisions() { return *decisions_; }
  // Set once RocksDB was told that this database must be reopened. No error is retryable then.
  std::atomic<bool> must_reopen{false};
  // Returns `error` as RocksDB should get it. If RocksDB 7.8.3 gets two errors of one outage, of
  // which one asks it to resume and the other one tells it not to, DB::Close can hang, whichever
  // comes first. So a retryable error waits here until the writes in flight are decided, for at
  // most three times ack_timeout. It is no longer retryable if must_reopen is set by then. The
  // caller must not hold an InFlight.
  rocksdb::IOStatus Agreed(rocksdb::IOStatus error) const;
  // Agreed, for an error of the Store.
  rocksdb::IOStatus Error(const Status& status, std::string_view context) const;
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
  // Notes that a change of the MANIFEST failed. RocksDB may resume from that failure and keep the
  // log that it has. True: that log has failed too, so that the database must be reopened.
  bool NoteManifestFailed();
  // Set by NoteManifestFailed, and cleared when an append to a MANIFEST succeeds.
  std::atomic<bool> manifest_failed{false};
  // The last write of a log failed, and RocksDB has not made another log since.
  std::atomic<bool> log_failed{false};

 private:
  struct Tail {
    FileId file;
    uint64_t size;
  };

  // Whether a call is allowed while a tail remains because the group has no room to truncate it.
  enum class Tails { kMustGo, kMayStand };

  // Returns what `call` returns, or why it is not allowed. Truncates the tails first.
  template <class Call>
  auto Run(Call&& call, Tails tails = Tails::kMustGo) -> decltype(call());
  Status CutTails();
  void ForgetTail(FileId file);
  bool IsUnlisted(std::string_view name) const;
  void Finish(const std::vector<FileId>& files);

  const std::string directory_;
  const std::string real_directory_;
  const std::unique_ptr<Store> store_;
  // Its tails() are whether tails_ may have entries.
  const std::shared_ptr<Decisions> decisions_;
  const std::shared_ptr<Log> log_;
  const std::unique_ptr<ForkDetector> fork_detector_;

  // Of the last append to a log: the thread's mark is written before the number, and read after it.
  std::atomic<const void*> appender_{nullptr};
  std::atomic<uint64_t> appended_log_{0};
  Mutex relisting_mutex_;  // an unlisted file is not listed and removed at the same time
  mutable Mutex mutex_;
  std::vector<Tail> tails_ HL_GUARDED_BY(mutex_);
  std::vector<std::string> vanished_ HL_GUARDED_BY(mutex_);
  std::set<std::string, std::less<>> unlisted_ HL_GUARDED_BY(mutex_);
  FinishedLogs logs_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
