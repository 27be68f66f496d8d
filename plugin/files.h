// The two kinds of writable files in a bound directory.
#pragma once

#include <rocksdb/file_system.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "bound_directory.h"

namespace hyperloop::plugin {

// The local file below one of ours. A forked child shares its descriptor with the parent: there it
// is neither written nor closed, which would cut it to the size that the child remembers.
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
  LocalFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
            std::shared_ptr<BoundDirectory> binding, std::string name);
  ~LocalFile() override;
  // IOFenced in a forked child. One load otherwise.
  rocksdb::IOStatus CheckProcess() const;

  const std::shared_ptr<BoundDirectory> binding_;
  const std::string name_;

 private:
  std::unique_ptr<rocksdb::FSWritableFile> local_;
};

// WAL, MANIFEST, CURRENT's temporary file: every byte goes to the group and to the local file.
//
// Append returns when the group says so (ack=append: durable on every replica; ack=sync: on its
// way). The local file is written after that, or, with local_write=overlapped, while the replicas
// work; never before the bytes are on their way, so that it is not longer than what the group may
// hold. The first failure is latched: later writes fail with it, the local file is cut back, and
// the group's indeterminate tail is cut before anything else is written. With ack=sync, Sync waits
// for the group, and one that fails is such a failure of what no Sync has confirmed yet; with
// ack=append there is nothing to wait for. A Sync that follows such a failure fails, too, where
// bytes are gone that an Append returned for. The local file is fsynced only with local_sync.
// Append and Flush are called by one thread at a time (RocksDB does), Sync may overlap them.
//
// A retryable error makes RocksDB flush its memtables and go on with a new log. Where nothing is to
// be flushed, or while RocksDB resumes from a MANIFEST that failed, RocksDB 7.8.3 goes on with the
// same log, whose writer is unusable by then: an assertion ends the process. There the error is not
// retryable: the database stops and can be reopened.
class LogLaneFile final : public LocalFile {
 public:
  // `size`: bytes that are in the file already, in the group and here.
  LogLaneFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
              std::shared_ptr<BoundDirectory> binding, std::string name, FileId file, uint64_t size,
              rocksdb::FileSystem* local_files);

  using rocksdb::FSWritableFileWrapper::Append;
  using rocksdb::FSWritableFileWrapper::PositionedAppend;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info,
                           rocksdb::IODebugContext* dbg) override;
  // Only at the end of the file: the group's files grow by appending. Elsewhere NotSupported.
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
  void SetPreallocationBlockSize(size_t size) override;

 private:
  // `data` to the group, and meanwhile to the local file by `append_local`. If either fails the
  // latch is set and the other's bytes are cut.
  template <class AppendLocal>
  rocksdb::IOStatus AppendBoth(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg, AppendLocal append_local);
  static constexpr uint64_t kNothingToCut = UINT64_MAX;
  // Latches `failure`, and has what follows `kept` in the group cut.
  void Fail(rocksdb::IOStatus failure, uint64_t kept);
  // What was latched, as RocksDB gets it. Not for callers that hold an InFlight.
  rocksdb::IOStatus Failure();
  // With the failure bytes are cut that an Append returned for.
  bool WasCut();
  // Sync and Fsync but for the local file.
  rocksdb::IOStatus SyncGroup();
  // Whether no active memtable is known to hold anything, as far as this log and the MANIFEST tell,
  // when this log ends at `kept`.
  bool NothingToFlush(uint64_t kept);

  const FileId file_;
  const bool manifest_;
  const uint64_t log_number_;  // 0: not a log
  const bool local_sync_, overlapped_, sync_confirms_;
  rocksdb::FileSystem* const local_files_;
  uint64_t size_;  // by the appending thread alone
  // Ends of the file before the last append, after it, and when a Sync last succeeded: written in
  // this order, read by whoever syncs. A late value only makes it cut less.
  std::atomic<uint64_t> before_last_, appended_, confirmed_;
  std::atomic<bool> failed_{false};  // set before the tail is given up, under mutex_
  std::mutex mutex_;
  rocksdb::IOStatus failure_;
  uint64_t kept_ = kNothingToCut;  // where the group's file is cut; under mutex_
};

// SST, blob, OPTIONS, IDENTITY …: always fsynced before the group lists the file at Close, from
// when on it is on its way to the replicas.
class ListedFile final : public LocalFile {
 public:
  ListedFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
             std::shared_ptr<BoundDirectory> binding, std::string name,
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
  bool dirty_ = true;  // bytes, or the file itself, not fsynced yet
  // Of what was appended, as long as that is all that the file can hold.
  bool counted_;
  uint64_t size_ = 0;
  FileChecksum checksum_;
};

// A listed file whose bytes are changed in place, as ingestion does with a table's sequence number:
// listed anew, with the checksum that it has then, when the change is synced or the file closed.
class ListedRandomFile final : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  ListedRandomFile(std::unique_ptr<rocksdb::FSRandomRWFile>&& local,
                   std::shared_ptr<BoundDirectory> binding, std::string name,
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

  const std::shared_ptr<BoundDirectory> binding_;
  const std::string name_;
  rocksdb::FileSystem* const local_files_;
  const std::string path_;
  bool changed_ = false;  // since it was listed
};

}  // namespace hyperloop::plugin
