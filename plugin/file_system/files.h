// The two kinds of writable files in a bound directory.
#pragma once

#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>
#include <string>

#include "bound/bound_directory.h"
#include "hyperloop/core/mutex.h"

namespace hyperloop::plugin {

// The base of both kinds: it owns the local file that holds the bytes. A forked child shares the
// file's descriptor with its parent, so the child neither writes nor closes the file. Closing would
// truncate it to the size that the child remembers.
class LocalFile : public rocksdb::FSWritableFileWrapper {
 public:
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  void SetIOPriority(rocksdb::Env::IOPriority priority) override {
    target()->SetIOPriority(priority);
  }
  rocksdb::Env::IOPriority GetIOPriority() override { return target()->GetIOPriority(); }

 protected:
  LocalFile(std::unique_ptr<rocksdb::FSWritableFile>&& local, std::shared_ptr<BoundDirectory> bound,
            std::string name);
  ~LocalFile() override;
  // Returns IOFenced in a forked child. Costs one atomic load in the owner.
  rocksdb::IOStatus CheckProcess() const;

  const std::shared_ptr<BoundDirectory> bound_;
  const std::string name_;

 private:
  std::unique_ptr<rocksdb::FSWritableFile> local_;
};

// A WAL, a MANIFEST, CURRENT or its temporary file. Every byte goes to the group and to the local
// file.
//
// With ack=append, Append returns when its bytes are durable on every replica, and Sync has nothing
// to wait for. With ack=sync, Append returns when its bytes are on their way, and Sync waits until
// they are durable. The local file is written after what Append waits for or, with
// local_write=overlapped, while the replicas work. It is never written before the bytes are on
// their way, so it is never longer than what the group may hold. A log is fsynced only with
// local_sync, MANIFEST and CURRENT always.
//
// The first failure is latched: every later write fails with it. A failed Append truncates the
// local file to its former size. A failed Sync gives up the last append, unless another Sync has
// confirmed it, or RocksDB has gone on with another log. What the group may hold of the bytes that
// were given up is truncated before anything else is written. A later Sync fails too if these
// bytes include some for which an Append has returned OK.
//
// Append and Flush are called by one thread at a time, as RocksDB does. Sync may run at the same
// time.
//
// After a retryable error RocksDB flushes its memtables and goes on with a new log. If there is
// nothing to flush, or while RocksDB resumes from a failed MANIFEST, RocksDB 7.8.3 goes on with the
// same log. The writer of that log is unusable by then, and an assertion ends the process. In these
// cases the error is not retryable: the database stops and can be reopened.
//
// With manual_wal_flush no error of a log is retryable. RocksDB has dropped batches from its buffer
// of the log then that its memtables hold. If it resumed, it would flush one column family after
// the other, and a process that ends in between would leave such a batch by half.
class LogLaneFile final : public LocalFile {
 public:
  // `size`: the bytes that the file already has, both in the group and locally.
  LogLaneFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
              std::shared_ptr<BoundDirectory> bound, std::string name, FileId file, uint64_t size,
              rocksdb::FileSystem* local_files);
  ~LogLaneFile() override;
  // Another log has its first bytes. Returns whether the bytes of this one stay as they are from
  // now on: no call has given any up, nor does a later one. False: a sync that failed has given up
  // some, or may do so just now.
  bool Followed();
  uint64_t log_number() const { return log_number_; }

  using rocksdb::FSWritableFileWrapper::Append;
  using rocksdb::FSWritableFileWrapper::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info,
                           rocksdb::IODebugContext* dbg) override;
  // NotSupported unless `offset` is the end of the file: the group's files grow only by appending.
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo& info,
                                     rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t nbytes, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  bool IsSyncThreadSafe() const override { return target()->IsSyncThreadSafe(); }
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  void SetPreallocationBlockSize(size_t size) override;

 private:
  // Appends `data` to the group, and by `append_local` to the local file. If either fails, the
  // failure is latched, and the bytes are truncated wherever they arrived.
  template <class AppendLocal>
  rocksdb::IOStatus AppendBoth(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg, AppendLocal append_local);
  static constexpr uint64_t kNothingToCut = UINT64_MAX;
  // Latches `failure`, and gives up what the group may hold of the file beyond `kept` bytes.
  void Fail(rocksdb::IOStatus failure, uint64_t kept);
  // Returns the latched failure as RocksDB should get it. The caller must not hold an InFlight.
  rocksdb::IOStatus Failure();
  // Whether the latched failure gave up bytes for which an Append has returned OK.
  bool WasCut();
  // The group's part of Sync and Fsync.
  rocksdb::IOStatus SyncGroup();
  // Then `sync_local`: of a MANIFEST and of what becomes CURRENT always, of a log with local_sync.
  template <class SyncLocal>
  rocksdb::IOStatus SyncBoth(SyncLocal sync_local);
  // Returns what the local file said as RocksDB should get it. The caller must not hold an
  // InFlight.
  rocksdb::IOStatus OfLocalFile(rocksdb::IOStatus local);
  // Notes that the file failed. Returns why RocksDB must not resume from that, or null.
  const char* WhyNotResume(bool retryable, uint64_t kept);
  // Why it is not proven that an active memtable holds an entry. Null only if the first `kept`
  // bytes of this log and the MANIFEST prove it.
  const char* WhyNothingToFlush(uint64_t kept);

  Verdicts& verdicts_;  // bound_'s
  const FileId file_;
  const bool manifest_;
  const uint64_t log_number_;  // 0: not a log that RocksDB recovers from
  const bool local_sync_, overlapped_, sync_confirms_;
  rocksdb::FileSystem* const local_files_;
  uint64_t size_;  // used by the appending thread only
  // The sizes of the file before the last append, after it, and as the last successful Sync
  // confirmed it. They are stored in this order. A Sync that reads a value which was stored
  // meanwhile only gives up less.
  std::atomic<uint64_t> before_last_, appended_, confirmed_;
  std::atomic<uint64_t> last_record_{0};  // of the last append
  std::atomic<bool> failed_{false};       // set under mutex_, before the group's tail is given up
  std::atomic<bool> followed_{false};     // see Followed
  std::atomic<int> failing_syncs_{0};  // those that have failed, and not yet given up what they do
  Mutex mutex_;
  rocksdb::IOStatus failure_ HL_GUARDED_BY(mutex_);
  // The size to which the group's file is truncated.
  uint64_t kept_ HL_GUARDED_BY(mutex_) = kNothingToCut;
};

// An SST, blob, OPTIONS or IDENTITY file, or another one that the group lists. Close fsyncs it and
// lists it in the group. From then on it is on its way to the replicas.
class ListedFile final : public LocalFile {
 public:
  ListedFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
             std::shared_ptr<BoundDirectory> bound, std::string name,
             rocksdb::FileSystem* local_files, std::string path, bool is_new);

  using rocksdb::FSWritableFileWrapper::Append;
  using rocksdb::FSWritableFileWrapper::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo& info,
                                     rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;

 private:
  void Count(const rocksdb::Slice& data);
  Status List(uint64_t size);

  rocksdb::FileSystem* const local_files_;
  const std::string path_;
  bool dirty_ = true;  // something was written, or the file was made, after the last fsync
  // Size and checksum of what was appended; they count while `counted_`.
  bool counted_;
  uint64_t size_ = 0;
  FileChecksum checksum_;
};

// A listed file whose bytes are changed in place, as ingestion changes a table's sequence number.
// When the change is synced or the file is closed, the file is listed anew with its new checksum.
class ListedRandomFile final : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  ListedRandomFile(std::unique_ptr<rocksdb::FSRandomRWFile>&& local,
                   std::shared_ptr<BoundDirectory> bound, std::string name,
                   rocksdb::FileSystem* local_files, std::string path);
  ListedRandomFile(const ListedRandomFile&) = delete;
  ListedRandomFile& operator=(const ListedRandomFile&) = delete;
  ~ListedRandomFile() override;

  rocksdb::IOStatus Write(uint64_t offset, const rocksdb::Slice& data,
                          const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Close(const rocksdb::IOOptions& options, rocksdb::IODebugContext* dbg) override;

 private:
  rocksdb::IOStatus ListIfChanged();

  const std::shared_ptr<BoundDirectory> bound_;
  const std::string name_;
  rocksdb::FileSystem* const local_files_;
  const std::string path_;
  bool changed_ = false;  // since it was listed
};

}  // namespace hyperloop::plugin
