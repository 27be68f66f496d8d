// The steps of one log-lane Append, besides Store::Append and (ack=append) Store::Await:
//   checks for failure, fork and tails    at most five atomic loads
//   count of the writes in flight         two atomic additions
//   sizes before and after                two atomic stores, three for a MANIFEST
//   whether it began the log              one comparison; the first append of each log also tells
//                                         which older logs are finished, under locks
//   local file                            one write(2) to the page cache, after Store::Await; with
//                                         local_write=overlapped before it, while the replicas work
// All others take no lock and allocate nothing unless they fail.
#include "files.h"

#include <algorithm>

#include "bound/import.h"
#include "local/paths.h"
#include "local/status.h"
#include "quirks/memtables.h"
#include "quirks/spoken_of.h"

namespace hyperloop::plugin {

using rocksdb::DataVerificationInfo;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

LocalFile::LocalFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                     std::shared_ptr<BoundDirectory> bound, std::string name)
    : FSWritableFileWrapper(local.get()),
      bound_(std::move(bound)),
      name_(std::move(name)),
      local_(std::move(local)) {}

LocalFile::~LocalFile() {
  if (bound_->InForkedChild()) static_cast<void>(local_.release());
}

IOStatus LocalFile::CheckProcess() const {
  if (!bound_->InForkedChild()) return IOStatus::OK();
  return ToIOStatus(bound_->CheckNotForked(), "cannot change " + name_);
}

IOStatus LocalFile::Close(const IOOptions& options, IODebugContext* dbg) {
  IOStatus allowed = CheckProcess();
  return allowed.ok() ? target()->Close(options, dbg) : allowed;
}

LogLaneFile::LogLaneFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                         std::shared_ptr<BoundDirectory> bound, std::string name, FileId file,
                         uint64_t size, rocksdb::FileSystem* local_files)
    : LocalFile(std::move(local), std::move(bound), std::move(name)),
      verdicts_(bound_->verdicts()),
      file_(file),
      manifest_(IsManifest(name_)),
      log_number_(IsLiveLog(name_) ? NumberOf(name_) : 0),
      local_sync_(bound_->store().options().local_sync || !IsLog(name_)),
      overlapped_(bound_->store().options().local_write == LocalWrite::kOverlapped),
      sync_confirms_(bound_->store().options().ack == AckMode::kSync),
      local_files_(local_files),
      size_(size),
      before_last_(size),
      appended_(size),
      confirmed_(size) {
  if (name_.ends_with(".log")) verdicts_.NoteLogMade();
}

LogLaneFile::~LogLaneFile() {
  if (bound_->InForkedChild()) return;  // where another thread may have held a lock for ever
  if (sync_confirms_) verdicts_.decisions().NoteClosed(this, UINT64_MAX);
  if (log_number_ != 0) bound_->finished_logs().Gone(log_number_, !WasCut());
}

bool LogLaneFile::Followed() {
  // A sync that fails counts itself before it reads this flag. So of two that meet, at least one
  // finds the other: either the sync cuts nothing, or the log is not finished. One that no longer
  // counts itself has cut what it does.
  followed_.store(true);
  if (failing_syncs_.load() != 0 || WasCut()) return false;
  if (sync_confirms_) verdicts_.decisions().NoteClosed(this, UINT64_MAX);
  return true;
}

const char* LogLaneFile::WhyNotResume(bool retryable, uint64_t kept) {
  if (LeadsToManifest(name_)) {
    return verdicts_.NoteManifestFailed() && retryable
               ? "; the log failed too, and RocksDB would go on with it: "
               : nullptr;
  }
  if (!retryable || !name_.ends_with(".log")) return nullptr;
  if (verdicts_.NoteLogFailed())
    return "; a change of the MANIFEST failed before, so RocksDB would go on with the same log: ";
  if (sync_confirms_ && kept < appended_.load(std::memory_order_acquire))
    return "; bytes that no sync confirmed are cut, which RocksDB may hold in a memtable: ";
  if (verdicts_.manual_flush())
    return "; with manual_wal_flush, memtables may hold batches that the log has not, of which "
           "RocksDB would flush one column family after the other: ";
  return WhyNothingToFlush(kept);
}

const char* LogLaneFile::WhyNothingToFlush(uint64_t kept) {
  // If this cannot be found out, the database has to stop. A stopped database can be reopened, but
  // a failed assertion ends the process.
  const Result<bool> something =
      MemtableHoldsAnything(*local_files_, bound_->directory(), name_, kept);
  if (something.status().code() == Code::kNotSupported)
    return "; the log is encrypted, compressed or of an unknown form, so it cannot be told whether "
           "RocksDB would go on with a new one: ";
  if (something.ok() && *something) return nullptr;
  return "; no active memtable is known to hold anything, so RocksDB may not go on with a new "
         "log: ";
}

IOStatus LogLaneFile::Failure() {
  MutexLock lock(mutex_);
  IOStatus failure = failure_;
  lock.unlock();
  return verdicts_.WaitFor(std::move(failure));
}

bool LogLaneFile::WasCut() {
  if (!failed_.load(std::memory_order_acquire)) return false;
  MutexLock lock(mutex_);
  return kept_ < appended_.load(std::memory_order_acquire);
}

void LogLaneFile::Fail(IOStatus failure, uint64_t kept) {
  // failed_ is set before the tail is given up, so a thread that finds the file truncated also
  // finds failed_ set. Failure() then waits for the mutex.
  MutexLock lock(mutex_);
  failed_.store(true, std::memory_order_release);
  kept_ = kept = std::min(kept_, kept);
  // After fencing, another primary decides what the group holds. After any other error the tail is
  // truncated once the group is back.
  if (!failure.IsIOFenced()) {
    if (kept != kNothingToCut) bound_->AbandonTail(file_, kept);
    const bool retryable = failure.GetRetryable() || failure.IsNoSpace();
    if (const char* why = WhyNotResume(retryable, kept); why != nullptr) {
      verdicts_.MustReopen();
      failure = IOStatus::IOError(failure.ToString() + why +
                                  "reopen the database when the cause is gone");
    }
  }
  // A failure from which RocksDB must not resume is never replaced by another one.
  if (failure_.ok() || failure_.GetRetryable() || failure_.IsNoSpace()) failure_ = failure;
}

template <class AppendLocal>
IOStatus LogLaneFile::AppendBoth(const Slice& data, const IOOptions& options, IODebugContext* dbg,
                                 AppendLocal append_local) {
  if (failed_.load(std::memory_order_acquire)) return Failure();
  if (manifest_) {
    spoken_of::WritesManifest(*bound_);
    // The record may name any file that is there now, so the replicas must have them all first.
    Status held = ListUnlisted(*local_files_, *bound_);
    if (held.ok()) held = bound_->AwaitFiles(Holders::kCaughtUp);
    if (!held.ok()) {
      Fail(ToIOStatus(held, "cannot append to " + name_), kNothingToCut);
      return Failure();
    }
  }
  // Before this append is in flight: a sync that begins later, and fails, gives up this one alone.
  before_last_.store(size_, std::memory_order_relaxed);
  Verdicts::InFlight in_flight(verdicts_);
  if (sync_confirms_) {
    if (failed_.load(std::memory_order_acquire)) {  // what a sync has just given up is not decided
      in_flight.Decided();
      return Failure();
    }
    const uint64_t last = last_record_.load(std::memory_order_relaxed);
    verdicts_.decisions().NoteClosed(this, last);
    in_flight.Stands(last);
  }
  const Result<AppendTicket> sent = bound_->Append(file_, {data.data(), data.size()}, size_);
  const bool overlaps = sent.ok() && overlapped_;
  IOStatus local = overlaps ? append_local() : IOStatus::OK();
  Status group = sent.status();
  if (group.ok() && !sync_confirms_) group = bound_->Await(*sent);
  if (group.ok() && !overlaps) local = append_local();
  const bool begun = overlaps || group.ok();
  if (group.ok() && local.ok()) {
    if (manifest_) verdicts_.NoteManifestWritten();
    const bool begun_now = size_ == 0 && log_number_ != 0 && !data.empty();
    size_ += data.size();
    appended_.store(size_, std::memory_order_release);
    if (begun_now) bound_->finished_logs().Began(log_number_);
    if (sync_confirms_ && log_number_ != 0) verdicts_.NoteAppended(log_number_);
    last_record_.store(sent->record);
    // A sync that fails gives up the last append.
    if (sync_confirms_) verdicts_.decisions().NoteOpen(this, sent->before, sent->record);
    if (!WasCut()) {
      in_flight.Stands(sent->record);
      return local;
    }
    in_flight.Decided();
    return Failure();
  }
  // The truncation also removes what a failed local write left. If the truncation fails, the next
  // open sets the local file to what the group holds.
  if (begun) target()->Truncate(size_, options, dbg).PermitUncheckedError();
  const bool added = sent.ok() || sent.status().code() != Code::kInvalidArgument;
  Fail(group.ok() ? local : ToIOStatus(group, "cannot append to " + name_),
       added ? size_ : kNothingToCut);
  in_flight.Decided();
  return Failure();
}

IOStatus LogLaneFile::Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) {
  return AppendBoth(data, options, dbg, [&] { return target()->Append(data, options, dbg); });
}

IOStatus LogLaneFile::Append(const Slice& data, const IOOptions& options,
                             const DataVerificationInfo& info, IODebugContext* dbg) {
  return AppendBoth(data, options, dbg, [&] { return target()->Append(data, options, info, dbg); });
}

IOStatus LogLaneFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                       IODebugContext* dbg) {
  if (offset == size_) return Append(data, options, dbg);
  return IOStatus::NotSupported("cannot write at " + std::to_string(offset) + " of " + name_ +
                                ", which has " + std::to_string(size_) +
                                " B: replicated files only grow at their end");
}

IOStatus LogLaneFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                       const DataVerificationInfo& /*info*/, IODebugContext* dbg) {
  return PositionedAppend(data, offset, options, dbg);
}

IOStatus LogLaneFile::Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  if (failed_.load(std::memory_order_acquire)) return Failure();
  if (size > size_) {
    return IOStatus::NotSupported("cannot lengthen " + name_ + " from " + std::to_string(size_) +
                                  " B to " + std::to_string(size) +
                                  " B: replicated files only grow by appending");
  }
  if (size < size_) {
    // The sizes change before the call, because a call that fails is carried out later: see Fail.
    size_ = size;
    for (std::atomic<uint64_t>* end : {&before_last_, &appended_, &confirmed_})
      end->store(std::min(end->load(), size));
    Verdicts::InFlight in_flight(verdicts_);
    if (Status status = bound_->Truncate(file_, size); !status.ok()) {
      Fail(ToIOStatus(status, "cannot truncate " + name_), size);
      in_flight.Decided();
      return Failure();
    }
  }
  return OfLocalFile(target()->Truncate(size, options, dbg));
}

IOStatus LogLaneFile::SyncGroup() {
  // RocksDB syncs a failed log before it goes on with another one. That must succeed, unless bytes
  // were given up for which an Append has returned OK. With ack=append there are none, because
  // every byte was durable on every replica when its Append returned.
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  if (!sync_confirms_) return IOStatus::OK();
  if (WasCut()) return Failure();
  // First: an append that finds no sync in flight decides all appends before it, and a sync that
  // begins later must know them.
  Verdicts::InFlight in_flight(verdicts_);
  const uint64_t record = last_record_.load();  // before `end`, so that it is not behind it
  const uint64_t end = appended_.load(std::memory_order_acquire);
  if (Status status = bound_->Sync(); !status.ok()) {
    if (log_number_ != 0 && verdicts_.IsToldByAnother(log_number_)) return IOStatus::OK();
    // RocksDB fails the write that asked for this sync, and gives its sequence numbers to the next
    // write. So the last append is given up. What was appended before it is kept: an earlier Sync
    // has confirmed it, or RocksDB holds it in a memtable. So is all of a log that another one
    // follows: RocksDB begins that one when the last write to this log has returned.
    const uint64_t last = before_last_.load(std::memory_order_relaxed);
    const uint64_t kept = std::max(confirmed_.load(std::memory_order_relaxed), std::min(last, end));
    ++failing_syncs_;
    Fail(ToIOStatus(status, "cannot sync " + name_), followed_.load() ? kNothingToCut : kept);
    --failing_syncs_;
    in_flight.Decided();
    return Failure();
  }
  verdicts_.decisions().NoteClosed(this, record);
  in_flight.Stands(record);
  in_flight.Decided();
  if (WasCut()) return Failure();
  uint64_t confirmed = confirmed_.load(std::memory_order_relaxed);
  while (confirmed < end && !confirmed_.compare_exchange_weak(confirmed, end)) {
  }
  return IOStatus::OK();
}

template <class SyncLocal>
IOStatus LogLaneFile::SyncBoth(SyncLocal sync_local) {
  if (IOStatus synced = SyncGroup(); !synced.ok()) return synced;
  if (!local_sync_) return IOStatus::OK();
  return OfLocalFile(sync_local());
}

IOStatus LogLaneFile::OfLocalFile(IOStatus local) {
  if (!local.ok() && LeadsToManifest(name_)) verdicts_.NoteManifestFailed();
  return verdicts_.WaitFor(std::move(local));
}

IOStatus LogLaneFile::Close(const IOOptions& options, IODebugContext* dbg) {
  return OfLocalFile(LocalFile::Close(options, dbg));
}

IOStatus LogLaneFile::Sync(const IOOptions& options, IODebugContext* dbg) {
  return SyncBoth([&] { return target()->Sync(options, dbg); });
}

IOStatus LogLaneFile::Fsync(const IOOptions& options, IODebugContext* dbg) {
  return SyncBoth([&] { return target()->Fsync(options, dbg); });
}

IOStatus LogLaneFile::RangeSync(uint64_t offset, uint64_t nbytes, const IOOptions& options,
                                IODebugContext* dbg) {
  if (!local_sync_) return IOStatus::OK();
  return OfLocalFile(target()->RangeSync(offset, nbytes, options, dbg));
}

void LogLaneFile::SetPreallocationBlockSize(size_t size) {
  target()->SetPreallocationBlockSize(size);
  const uint64_t area = bound_->store().statistics().data_bytes;
  if (area != 0 && area < 2 * static_cast<uint64_t>(size)) {
    bound_->WarnOnce(
        BoundDirectory::Warning::kSpace,
        "the group's data area of " + std::to_string(area >> 20) +
            " MiB is smaller than two logs of " + std::to_string(size >> 20) +
            " MiB (1.1 x write_buffer_size): writes may wait for space; make the region larger or "
            "write_buffer_size smaller");
  }
}

ListedFile::ListedFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                       std::shared_ptr<BoundDirectory> bound, std::string name,
                       rocksdb::FileSystem* local_files, std::string path, bool is_new)
    : LocalFile(std::move(local), std::move(bound), std::move(name)),
      local_files_(local_files),
      path_(std::move(path)),
      counted_(is_new) {}

void ListedFile::Count(const Slice& data) {
  if (!counted_) return;
  size_ += data.size();
  checksum_.Add({data.data(), data.size()});
}

IOStatus ListedFile::Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  Count(data);
  return target()->Append(data, options, dbg);
}

IOStatus ListedFile::Append(const Slice& data, const IOOptions& options,
                            const DataVerificationInfo& info, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  Count(data);
  return target()->Append(data, options, info, dbg);
}

IOStatus ListedFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                      IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  counted_ = false;
  return target()->PositionedAppend(data, offset, options, dbg);
}

IOStatus ListedFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                      const DataVerificationInfo& info, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  counted_ = false;
  return target()->PositionedAppend(data, offset, options, info, dbg);
}

IOStatus ListedFile::Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  counted_ = false;
  return target()->Truncate(size, options, dbg);
}

IOStatus ListedFile::Sync(const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  IOStatus status = target()->Sync(options, dbg);
  if (status.ok()) dirty_ = false;
  return status;
}

IOStatus ListedFile::Fsync(const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  IOStatus status = target()->Fsync(options, dbg);
  if (status.ok()) dirty_ = false;
  return status;
}

IOStatus ListedFile::Close(const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  IOStatus closed = dirty_ ? target()->Fsync(options, dbg) : IOStatus::OK();
  if (closed.ok()) closed = target()->Close(options, dbg);
  uint64_t size = 0;  // asked of the path, because a reopened file object counts from 0
  if (closed.ok()) closed = local_files_->GetFileSize(path_, options, &size, dbg);
  // The file was deleted or renamed while it was open. There is nothing to list under this name.
  if (closed.IsNotFound() || closed.IsPathNotFound()) return IOStatus::OK();
  if (!closed.ok()) {
    bound_->NoteUnlisted(name_);  // RocksDB may name the file all the same
    return closed;
  }
  return bound_->verdicts().WaitFor(List(size), "cannot list " + name_ + " in the group");
}

Status ListedFile::List(uint64_t size) {
  if (counted_ && size == size_) return bound_->ListFile({name_, size, checksum_.value()});
  return ListLocal(*local_files_, *bound_, path_, name_);
}

// --- ListedRandomFile

ListedRandomFile::ListedRandomFile(std::unique_ptr<rocksdb::FSRandomRWFile>&& local,
                                   std::shared_ptr<BoundDirectory> bound, std::string name,
                                   rocksdb::FileSystem* local_files, std::string path)
    : FSRandomRWFileOwnerWrapper(std::move(local)),
      bound_(std::move(bound)),
      name_(std::move(name)),
      local_files_(local_files),
      path_(std::move(path)) {}

ListedRandomFile::~ListedRandomFile() {
  if (!changed_ || bound_->InForkedChild()) return;
  const IOStatus listed = Fsync(IOOptions(), nullptr);
  if (!listed.ok()) bound_->log().Write(LogLevel::kError, name_ + ": " + listed.ToString());
}

IOStatus ListedRandomFile::Write(uint64_t offset, const Slice& data, const IOOptions& options,
                                 IODebugContext* dbg) {
  if (Status allowed = bound_->CheckNotForked(); !allowed.ok()) return ToIOStatus(allowed, name_);
  changed_ = true;
  return target()->Write(offset, data, options, dbg);
}

IOStatus ListedRandomFile::Sync(const IOOptions& options, IODebugContext* dbg) {
  IOStatus synced = target()->Sync(options, dbg);
  return synced.ok() ? ListIfChanged() : synced;
}

IOStatus ListedRandomFile::Fsync(const IOOptions& options, IODebugContext* dbg) {
  IOStatus synced = target()->Fsync(options, dbg);
  return synced.ok() ? ListIfChanged() : synced;
}

IOStatus ListedRandomFile::Close(const IOOptions& options, IODebugContext* dbg) {
  if (changed_) {
    IOStatus synced = Fsync(options, dbg);
    if (!synced.ok()) return synced;
  }
  return target()->Close(options, dbg);
}

IOStatus ListedRandomFile::ListIfChanged() {
  if (!changed_) return IOStatus::OK();
  const Status listed = ListLocal(*local_files_, *bound_, path_, name_);
  if (listed.code() == Code::kNotFound) return IOStatus::OK();  // deleted while open
  if (listed.ok()) changed_ = false;
  return bound_->verdicts().WaitFor(listed, "cannot list " + name_ + " in the group");
}

}  // namespace hyperloop::plugin
