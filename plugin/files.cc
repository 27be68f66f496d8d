// Cost of one log-lane Append: BoundDirectory::Append (two atomic loads, Store::Append); write(2)
// to the page cache happens while the replicas work.
#include "files.h"

#include <functional>

#include "status.h"

namespace hyperloop::plugin {

using rocksdb::DataVerificationInfo;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

LocalFile::LocalFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                     std::shared_ptr<BoundDirectory> binding, std::string name)
    : FSWritableFileWrapper(local.get()),
      binding_(std::move(binding)),
      name_(std::move(name)),
      local_(std::move(local)) {}

LocalFile::~LocalFile() {
  if (binding_->InForkedChild()) static_cast<void>(local_.release());
}

IOStatus LocalFile::CheckProcess() const {
  if (!binding_->InForkedChild()) return IOStatus::OK();
  return ToIOStatus(binding_->CheckNotForked(), "cannot change " + name_);
}

IOStatus LocalFile::Close(const IOOptions& options, IODebugContext* dbg) {
  IOStatus allowed = CheckProcess();
  return allowed.ok() ? target()->Close(options, dbg) : allowed;
}

LogLaneFile::LogLaneFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                         std::shared_ptr<BoundDirectory> binding, std::string name, FileId file,
                         uint64_t size)
    : LocalFile(std::move(local), std::move(binding), std::move(name)),
      file_(file),
      local_sync_(binding_->store().options().local_sync),
      size_(size) {}

IOStatus LogLaneFile::Fail(const Status& status, const char* what) {
  failed_ = true;
  failure_ = ToIOStatus(status, what + name_);
  // Fenced: another primary decides what the group holds. Otherwise the tail is cut once the group
  // is back.
  if (status.code() != Code::kFenced) binding_->AbandonTail(file_, size_);
  return failure_;
}

template <class AppendLocal>
IOStatus LogLaneFile::AppendBoth(const Slice& data, const IOOptions& options, IODebugContext* dbg,
                                 AppendLocal append_local) {
  if (failed_) return failure_;
  bool begun = false;
  IOStatus local;
  auto meanwhile = [&] {
    begun = true;
    local = append_local();
  };
  const Status group = binding_->Append(file_, {data.data(), data.size()}, std::ref(meanwhile));
  if (!group.ok()) {
    // What cannot be cut here is cut at the next open: the group is the truth.
    if (begun) static_cast<void>(target()->Truncate(size_, options, dbg));
    return Fail(group, "cannot append to ");
  }
  if (local.ok()) {
    size_ += data.size();
    return local;
  }
  failed_ = true;
  failure_ = local;
  binding_->AbandonTail(file_, size_);
  return local;
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
  if (failed_) return failure_;
  if (size > size_) {
    return IOStatus::NotSupported("cannot lengthen " + name_ + " from " + std::to_string(size_) +
                                  " B to " + std::to_string(size) +
                                  " B: replicated files only grow by appending");
  }
  if (size < size_) {
    size_ = size;  // before the call: what is cut when it fails half-way, too
    if (Status status = binding_->Truncate(file_, size); !status.ok())
      return Fail(status, "cannot truncate ");
  }
  return target()->Truncate(size, options, dbg);
}

IOStatus LogLaneFile::Sync(const IOOptions& options, IODebugContext* dbg) {
  // May run beside Append: no latch here. What broke the group makes the next append fail.
  if (Status status = binding_->Sync(file_); !status.ok())
    return ToIOStatus(status, "cannot sync " + name_);
  return local_sync_ ? target()->Sync(options, dbg) : IOStatus::OK();
}

IOStatus LogLaneFile::Fsync(const IOOptions& options, IODebugContext* dbg) {
  if (Status status = binding_->Sync(file_); !status.ok())
    return ToIOStatus(status, "cannot sync " + name_);
  return local_sync_ ? target()->Fsync(options, dbg) : IOStatus::OK();
}

IOStatus LogLaneFile::RangeSync(uint64_t offset, uint64_t nbytes, const IOOptions& options,
                                IODebugContext* dbg) {
  return local_sync_ ? target()->RangeSync(offset, nbytes, options, dbg) : IOStatus::OK();
}

void LogLaneFile::SetPreallocationBlockSize(size_t size) {
  target()->SetPreallocationBlockSize(size);
  constexpr uint64_t kExtent = 1 << 20;
  const uint64_t area = binding_->store().statistics().extents * kExtent;
  if (area != 0 && area < 2 * static_cast<uint64_t>(size)) {
    binding_->WarnOnce(
        binding_->warned_space,
        "the group's data area of " + std::to_string(area >> 20) +
            " MiB is smaller than two logs of " + std::to_string(size >> 20) +
            " MiB (1.1 x write_buffer_size): writes may wait for space; make the region larger or "
            "write_buffer_size smaller");
  }
}

ListedFile::ListedFile(std::unique_ptr<rocksdb::FSWritableFile>&& local,
                       std::shared_ptr<BoundDirectory> binding, std::string name,
                       rocksdb::FileSystem* local_files, std::string path)
    : LocalFile(std::move(local), std::move(binding), std::move(name)),
      local_files_(local_files),
      path_(std::move(path)) {}

IOStatus ListedFile::Append(const Slice& data, const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  return target()->Append(data, options, dbg);
}

IOStatus ListedFile::Append(const Slice& data, const IOOptions& options,
                            const DataVerificationInfo& info, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  return target()->Append(data, options, info, dbg);
}

IOStatus ListedFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                      IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  return target()->PositionedAppend(data, offset, options, dbg);
}

IOStatus ListedFile::PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                                      const DataVerificationInfo& info, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
  return target()->PositionedAppend(data, offset, options, info, dbg);
}

IOStatus ListedFile::Truncate(uint64_t size, const IOOptions& options, IODebugContext* dbg) {
  if (IOStatus allowed = CheckProcess(); !allowed.ok()) return allowed;
  dirty_ = true;
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
  if (dirty_) {
    IOStatus synced = target()->Fsync(options, dbg);
    if (!synced.ok()) return synced;
  }
  IOStatus closed = target()->Close(options, dbg);
  if (!closed.ok()) return closed;
  uint64_t size = 0;  // asked of the path: a reopened posix file counts from 0
  IOStatus sized = local_files_->GetFileSize(path_, options, &size, dbg);
  // Deleted or renamed while open: there is nothing to list under this name.
  if (sized.IsNotFound() || sized.IsPathNotFound()) return IOStatus::OK();
  if (!sized.ok()) return sized;
  return ToIOStatus(binding_->ListLocal(name_, size), "cannot list " + name_ + " in the group");
}

}  // namespace hyperloop::plugin
