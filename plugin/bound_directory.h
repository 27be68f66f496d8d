// BoundDirectory: one database directory and the group it is bound to, from LockFile to UnlockFile.
//
// Every call of the plugin into a Store goes through here, so that two rules hold at one place:
// - a file whose Append failed has an indeterminate tail in the group. Before anything else is
//   written the tail is cut to what RocksDB knows to be there: RocksDB gives the failed batch's
//   sequence numbers to the next one, so both must never be replayed together. While the group has
//   no room for the record that cuts, only removals, look-ups and syncs pass: they make room, or
//   add nothing;
// - everything fails in a forked child.
// Whether the group is broken, fenced or being brought back is the Store's to know.
//
// Thread safe. On the append path: two relaxed-cost atomic loads, the count of writes in flight,
// and the Store's own calls; no lock, no allocation.
#pragma once

#include <rocksdb/io_status.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

class BoundDirectory {
 public:
  // `directory`: as RocksDB spells it. `store` was taken.
  BoundDirectory(std::string directory, std::unique_ptr<ForkDetector> fork_detector,
                 std::unique_ptr<Store> store, std::shared_ptr<Log> log);
  BoundDirectory(const BoundDirectory&) = delete;
  BoundDirectory& operator=(const BoundDirectory&) = delete;

  const std::string& directory() const { return directory_; }
  Log& log() { return *log_; }
  // For reading: Read, options, statistics.
  Store& store() { return *store_; }
  // kFenced in a forked child, whatever it wants to change.
  Status CheckNotForked() const;
  bool InForkedChild() const { return !fork_detector_->IsOwner(); }

  // The name relative to the directory, or empty when the path is not in it.
  std::string RelativeName(const std::string& path) const;
  bool IsDirectory(const std::string& path) const;

  Result<FileId> Create(std::string_view name, Lane lane);
  Result<FileId> Lookup(std::string_view name);
  Result<std::vector<FileInfo>> Files();
  Result<AppendTicket> Append(FileId file, std::string_view data, uint64_t end);
  Status Await(AppendTicket ticket);
  Status Sync();
  Status Truncate(FileId file, uint64_t size);
  Status Rename(std::string_view from, std::string_view to);
  // A file that the group does not have is no error.
  Status Remove(std::string_view name);
  // As Store.
  Status ListFile(const WholeFile& file);
  Status AwaitFiles();
  Status Close();

  // The group may hold more of `file` than its first `size` bytes; RocksDB was told that the rest
  // failed.
  void AbandonTail(FileId file, uint64_t size);

  // Log-lane files that Reconcile removed: RocksDB may have listed them before it locked (DestroyDB
  // does), and their deletion must not fail. True once per name.
  void NoteVanished(std::vector<std::string> names);
  bool TakeVanished(std::string_view name);

  // Logs `message` at the first call with this `once` flag.
  void WarnOnce(std::atomic<bool>& once, std::string_view message);
  std::atomic<bool> warned_outside{false}, warned_space{false}, warned_manual_flush{false},
      warned_recycling{false}, warned_archive{false}, warned_prepared{false},
      warned_manifest{false};
  // A write of a log that is not decided yet: between the asking of the group and the choice of the
  // error.
  class InFlight {
   public:
    explicit InFlight(BoundDirectory& directory) : directory_(&directory) {
      directory_->in_flight_.fetch_add(1, std::memory_order_relaxed);
    }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() { Decided(); }
    void Decided() {
      if (directory_ != nullptr) directory_->in_flight_.fetch_sub(1, std::memory_order_release);
      directory_ = nullptr;
    }

   private:
    BoundDirectory* directory_;
  };
  // RocksDB is told that this database must be reopened: from now on no error is retryable.
  std::atomic<bool> must_reopen{false};
  // `error` as RocksDB gets it. Where one error of an outage asks RocksDB 7.8.3 to resume and
  // another one of the same outage says that it must not, DB::Close can hang, whichever comes
  // first: a retryable one waits until the writes in flight are decided.
  // Not for callers that hold an InFlight.
  rocksdb::IOStatus Agreed(rocksdb::IOStatus error) const;
  rocksdb::IOStatus Error(const Status& status, std::string_view context) const;
  // A log was appended to by this thread; appends to logs follow one another.
  void NoteAppended(uint64_t log_number);
  // Whether a failed sync of a log need not be told, because the caller goes on to what tells it.
  // That is so for a log that is older than the one appended to last, if the caller is
  // - the thread that did so: RocksDB syncs that log next, in the same write or SyncWAL;
  // - a thread of RocksDB's background: the MANIFEST's record, for which it syncs older logs before
  //   a flush, is behind their bytes in the log lane.
  bool IsToldByAnother(uint64_t log_number) const;
  // The last change of a MANIFEST failed, and none has succeeded since: RocksDB may be resuming
  // from that, keeping the log that it has. True: the log has failed, too, so that the database
  // must be reopened.
  bool NoteManifestFailed();
  std::atomic<bool> manifest_failed{false};
  // The last write of a log failed, and RocksDB has not made another log since.
  std::atomic<bool> log_failed{false};

 private:
  struct Tail {
    FileId file;
    uint64_t size;
  };

  // Whether a call may pass while a tail stands that the group has no room to cut.
  enum class Tails { kMustGo, kMayStand };

  template <class Call>
  auto Run(Call&& call, Tails tails = Tails::kMustGo) -> decltype(call());
  Status CutTails();
  void ForgetTail(FileId file);

  const std::string directory_;
  const std::string real_directory_;
  const std::unique_ptr<Store> store_;
  const std::shared_ptr<Log> log_;
  const std::unique_ptr<ForkDetector> fork_detector_;

  std::atomic<int> in_flight_{0};
  // Of the last append to a log: the thread's mark is written before the number, and read after it.
  std::atomic<const void*> appender_{nullptr};
  std::atomic<uint64_t> appended_log_{0};
  // Some of tails_ are to be cut. Set with release after they were written under mutex_; Run's
  // acquire load pairs with it.
  std::atomic<bool> has_tails_{false};
  std::mutex mutex_;  // guards what follows
  std::vector<Tail> tails_;
  std::vector<std::string> vanished_;
};

}  // namespace hyperloop::plugin
