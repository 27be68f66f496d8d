#include "file_system.h"

#include <unistd.h>

#include <algorithm>

#include "bound/import.h"
#include "files.h"
#include "local/local_files.h"
#include "local/status.h"
#include "opening/lock_holder.h"
#include "options_map.h"
#include "quirks/spoken_of.h"

namespace hyperloop::plugin {

namespace {

// The bytes of the longest MANIFEST in the group; 0 also if the group is out of reach.
uint64_t LongestManifest(Store& store) {
  const Result<std::vector<FileInfo>> files = store.Files();
  uint64_t longest = 0;
  if (!files.ok()) return longest;
  for (const FileInfo& file : *files)
    if (file.lane == Lane::kLog && IsManifest(file.name)) longest = std::max(longest, file.size);
  return longest;
}

}  // namespace

using Warning = BoundDirectory::Warning;
using rocksdb::FileOptions;
using rocksdb::FSWritableFile;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

HyperloopFileSystem::HyperloopFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                                         const StoreOptions& options, StoreOpener open_store,
                                         Taking taking)
    : FileSystemWrapper(base),
      options_(options),
      open_store_(std::move(open_store)),
      log_(std::make_shared<InfoLog>()),
      taking_(std::move(taking)) {
  RegisterOptions("hyperloop", &options_, &RocksOptionMap());
}

HyperloopFileSystem::~HyperloopFileSystem() = default;

std::string HyperloopFileSystem::GetId() const { return FormatStoreUri(options_); }

rocksdb::Status HyperloopFileSystem::PrepareOptions(const rocksdb::ConfigOptions& options) {
  if (Status valid = ValidateStoreOptions(options_); !valid.ok()) {
    return rocksdb::Status(ToIOStatus(valid, "hyperloop"));
  }
  const std::string uri = FormatStoreUri(options_);
  {
    MutexLock lock(mutex_);
    if (bound_ != nullptr || binding_now_ || prepared_ == uri)
      return FileSystemWrapper::PrepareOptions(options);
  }
  Result<std::unique_ptr<Store>> store = open_store_(options_, log_);
  if (!store.ok())
    return rocksdb::Status(ToIOStatus(store.status(), "hyperloop: cannot reach the group"));
  {
    MutexLock lock(mutex_);
    prepared_ = uri;
  }
  return FileSystemWrapper::PrepareOptions(options);
}

std::shared_ptr<BoundDirectory> HyperloopFileSystem::Bound() const {
  MutexLock lock(mutex_);
  return bound_;
}

HyperloopFileSystem::Place HyperloopFileSystem::Locate(const std::string& path) const {
  Place place;
  std::shared_ptr<BoundDirectory> bound = Bound();
  if (bound == nullptr) return place;
  place.name = bound->RelativeName(path);
  if (!place.name.empty()) place.file_class = Classify(place.name);
  place.bound = std::move(bound);
  return place;
}

Status HyperloopFileSystem::CheckProcess(const Place& place) {
  if (place.bound == nullptr || place.file_class == FileClass::kOutside) return Status::Ok();
  return place.bound->CheckNotForked();
}

// RocksDB puts the info log away, and begins another one, before it tries to lock the directory.
Status HyperloopFileSystem::CheckInfoLog(const std::string& path) {
  if (BaseOf(path) != "LOG") return Status::Ok();
  const std::string directory = ParentOf(path);
  const pid_t holder = LockHolder(directory + "/" + std::string(kLockFileName));
  if (holder == 0 || holder == ::getpid()) return Status::Ok();
  return Busy("process " + std::to_string(holder) + " has the database in " + directory +
              " open (it holds LOCK), and this log is its own; close it there first");
}

// This looks up one file, and only for names that RocksDB rarely changes.
Status HyperloopFileSystem::CheckUnbound(const std::string& path, const Place& place,
                                         Change change) const {
  if (place.file_class != FileClass::kOutside) return Status::Ok();
  const std::string name = BaseOf(path);
  std::string directory = ParentOf(path);
  const bool log = Classify(name) == FileClass::kLogLane;
  const bool taken_away =
      change == Change::kOverwrite && (IsTableOrBlob(name) || name == kPairingFileName);
  if (!log && !taken_away) return Status::Ok();
  if (log && BaseOf(directory) + "/" == kArchivePrefix) directory = ParentOf(directory);
  const std::string pairing = directory + "/" + std::string(kPairingFileName);
  if (target()->FileExists(pairing, IOOptions(), nullptr).IsNotFound()) return Status::Ok();
  return PermissionDenied(
      directory +
      " holds a replicated database that is not open here. Use a command that opens the "
      "database; or move " +
      pairing +
      " away, which makes the directory a plain one outside its group. What is changed in its logs "
      "now would be undone at the next open");
}

Status HyperloopFileSystem::CheckChange(const std::string& path, const Place& place,
                                        Change change) const {
  HL_RETURN_IF_ERROR(CheckProcess(place));
  return CheckUnbound(path, place, change);
}

Status HyperloopFileSystem::CheckCreation(const std::string& path, const Place& place) const {
  const bool overwrites = place.file_class == FileClass::kOutside && IsTableOrBlob(BaseOf(path)) &&
                          target()->FileExists(path, IOOptions(), nullptr).ok();
  HL_RETURN_IF_ERROR(CheckUnbound(path, place, overwrites ? Change::kOverwrite : Change::kCreate));
  if (place.bound == nullptr) return Status::Ok();
  HL_RETURN_IF_ERROR(CheckProcess(place));
  HL_RETURN_IF_ERROR(CheckForeign(path, place));
  if (IsLog(BaseOf(path))) HL_RETURN_IF_ERROR(CheckFirstLog(path, place));
  const bool wal = place.file_class == FileClass::kLogLane && place.name.ends_with(".log");
  return wal ? other_directories_.CheckNewLog() : Status::Ok();
}

// Options may be hidden from this FileSystem, or name directories as a layer above it spells them.
// But a database that is being opened makes its first log on the thread that opens it.
Status HyperloopFileSystem::CheckFirstLog(const std::string& path, const Place& place) {
  if (!spoken_of::IsOpening(place.bound.get())) return Status::Ok();
  if (place.file_class != FileClass::kOutside) {
    spoken_of::Opened();
    return Status::Ok();
  }
  return NotSupported(path + " would be the log of the database in " + place.bound->directory() +
                      ", and is not in that directory, so it would not be replicated; leave "
                      "wal_dir unset");
}

Status HyperloopFileSystem::CheckForeign(const std::string& path, const Place& place) const {
  if (place.bound == nullptr || place.file_class != FileClass::kOutside) return Status::Ok();
  const std::string name = BaseOf(path);
  if (!IsLog(name) && Classify(name) != FileClass::kListed) return Status::Ok();
  return other_directories_.CheckFilesIn(RealPath(ParentOf(path)));
}

IOStatus HyperloopFileSystem::CheckElsewhere(const std::string& path) const {
  return ToIOStatus(CheckCreation(path, Locate(path)), "cannot create " + path);
}

void HyperloopFileSystem::WarnIfOutside(const std::string& path, const Place& place) {
  if (place.bound == nullptr || place.file_class != FileClass::kOutside) return;
  if (place.bound->HasWarned(Warning::kOutside)) return;
  place.bound->WarnOnce(Warning::kOutside,
                        "files outside " + place.bound->directory() +
                            ", or in directories below it, are not replicated (the first: " + path +
                            ")");
}

IOStatus HyperloopFileSystem::OpenLogLane(const std::string& path, const Place& place,
                                          const FileOptions& options, bool reopen,
                                          std::unique_ptr<FSWritableFile>* file,
                                          IODebugContext* dbg) {
  BoundDirectory& bound = *place.bound;
  FileOptions local_options = options;
  local_options.use_direct_writes = false;
  local_options.use_mmap_writes = false;

  Verdicts::InFlight in_flight(bound.verdicts());
  Result<FileId> id = reopen ? bound.Lookup(place.name) : bound.Create(place.name);
  if (reopen && id.status().code() == Code::kNotFound) id = bound.Create(place.name);
  if (!id.ok()) {
    if (LeadsToManifest(place.name)) bound.verdicts().NoteManifestFailed();
    in_flight.Decided();
    return bound.verdicts().WaitFor(id.status(), "cannot create " + path + " in the group");
  }

  std::unique_ptr<FSWritableFile> local;
  IOStatus opened = OpenLocal(path, local_options, reopen, &local, dbg);
  uint64_t size = 0;  // asked of the path, because a reopened file object says 0
  if (opened.ok() && reopen) opened = target()->GetFileSize(path, IOOptions(), &size, dbg);
  if (!opened.ok()) {
    if (LeadsToManifest(place.name)) bound.verdicts().NoteManifestFailed();
    in_flight.Decided();
    return bound.verdicts().WaitFor(std::move(opened));
  }
  auto made =
      std::make_unique<LogLaneFile>(std::move(local), place.bound, place.name, *id, size, target());
  if (!reopen && place.name.ends_with(".log")) NoteLogMade(bound, place.name);
  if (!reopen && made->log_number() != 0)
    bound.finished_logs().Made(made->log_number(), *id,
                               [log = made.get()] { return log->Followed(); });
  *file = std::move(made);
  return IOStatus::OK();
}

IOStatus HyperloopFileSystem::OpenLocal(const std::string& path, const FileOptions& options,
                                        bool reopen, std::unique_ptr<FSWritableFile>* file,
                                        IODebugContext* dbg) {
  return reopen ? target()->ReopenWritableFile(path, options, file, dbg)
                : target()->NewWritableFile(path, options, file, dbg);
}

IOStatus HyperloopFileSystem::OpenWritable(const std::string& path, const FileOptions& options,
                                           bool reopen, std::unique_ptr<FSWritableFile>* file,
                                           IODebugContext* dbg) {
  const Place place = Locate(path);
  if (Status allowed = CheckCreation(path, place); !allowed.ok())
    return ToIOStatus(allowed, (reopen ? "cannot reopen " : "cannot create ") + path);
  if (place.file_class == FileClass::kLogLane)
    return OpenLogLane(path, place, options, reopen, file, dbg);
  WarnIfOutside(path, place);
  if (place.file_class != FileClass::kListed) return OpenLocal(path, options, reopen, file, dbg);
  if (target()->FileExists(path, IOOptions(), dbg).ok()) NoteOverwritten(place);
  std::unique_ptr<FSWritableFile> local;
  IOStatus opened = OpenLocal(path, options, reopen, &local, dbg);
  if (opened.ok()) {
    file->reset(new ListedFile(std::move(local), place.bound, place.name, target(), path, !reopen));
  }
  return opened;
}

IOStatus HyperloopFileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                                std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                                IODebugContext* dbg) {
  const std::string name = BaseOf(path);
  if (!IsManifest(name) && name != "CURRENT" && !IsLiveLog(name))
    return target()->NewSequentialFile(path, options, file, dbg);
  const Place place = Locate(path);
  const bool in_bound = place.file_class == FileClass::kLogLane;
  if (IsManifest(name)) spoken_of::ReadsManifest(in_bound ? place.bound.get() : nullptr);
  return in_bound ? target()->NewSequentialFile(path, options, file, dbg)
                  : OpenUnlocked(path, options, file, dbg);
}

IOStatus HyperloopFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<FSWritableFile>* file,
                                              IODebugContext* dbg) {
  return OpenWritable(path, options, false, file, dbg);
}

IOStatus HyperloopFileSystem::ReopenWritableFile(const std::string& path,
                                                 const FileOptions& options,
                                                 std::unique_ptr<FSWritableFile>* file,
                                                 IODebugContext* dbg) {
  return OpenWritable(path, options, true, file, dbg);
}

IOStatus HyperloopFileSystem::ReuseWritableFile(const std::string& path,
                                                const std::string& old_path,
                                                const FileOptions& options,
                                                std::unique_ptr<FSWritableFile>* file,
                                                IODebugContext* dbg) {
  Place place = Locate(path);
  if (place.bound == nullptr) {
    for (const std::string& each : {path, old_path}) {
      if (Status allowed = CheckUnbound(each, Locate(each), Change::kOverwrite); !allowed.ok())
        return ToIOStatus(allowed, "cannot reuse " + old_path + " as " + path);
    }
    return target()->ReuseWritableFile(path, old_path, options, file, dbg);
  }
  std::unique_ptr<FSWritableFile> fresh;
  IOStatus status = NewWritableFile(path, options, &fresh, dbg);
  if (status.ok()) status = DeleteFile(old_path, options.io_options, dbg);
  if (status.ok()) *file = std::move(fresh);
  return status;
}

IOStatus HyperloopFileSystem::NewRandomRWFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                              IODebugContext* dbg) {
  const Place place = Locate(path);
  if (Status allowed = CheckChange(path, place, Change::kOverwrite); !allowed.ok())
    return ToIOStatus(allowed, "cannot write " + path);
  if (place.file_class == FileClass::kLogLane) {
    return IOStatus::NotSupported("replicated files only grow at their end: " + path);
  }
  if (place.file_class != FileClass::kListed)
    return target()->NewRandomRWFile(path, options, file, dbg);
  NoteOverwritten(place);
  std::unique_ptr<rocksdb::FSRandomRWFile> local;
  IOStatus opened = target()->NewRandomRWFile(path, options, &local, dbg);
  if (opened.ok())
    file->reset(new ListedRandomFile(std::move(local), place.bound, place.name, target(), path));
  return opened;
}

IOStatus HyperloopFileSystem::NewMemoryMappedFileBuffer(
    const std::string& path, std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* buffer) {
  const Place place = Locate(path);
  if (Status allowed = CheckChange(path, place, Change::kOverwrite); !allowed.ok())
    return ToIOStatus(allowed, "cannot map " + path);
  if (place.file_class == FileClass::kLogLane) {
    return IOStatus::NotSupported("replicated files cannot be written through a mapping: " + path);
  }
  return target()->NewMemoryMappedFileBuffer(path, buffer);
}

IOStatus HyperloopFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                         IODebugContext* dbg) {
  Place place = Locate(path);
  if (Status allowed = CheckChange(path, place, Change::kOverwrite); !allowed.ok())
    return ToIOStatus(allowed, "cannot delete " + path);
  if (place.file_class == FileClass::kLogLane || place.file_class == FileClass::kListed) {
    if (Status removed = place.bound->Remove(place.name); !removed.ok()) {
      return ToIOStatus(removed, "cannot delete " + path + " in the group");
    }
    NoteLogGone(place.name);
  }
  const IOStatus status =
      KeepFromMending(place, [&] { return target()->DeleteFile(path, options, dbg); });
  const bool absent = status.IsNotFound() || status.IsPathNotFound();
  if (absent && place.bound != nullptr && place.bound->TakeVanished(place.name))
    return IOStatus::OK();
  return status;
}

IOStatus HyperloopFileSystem::Truncate(const std::string& path, size_t size,
                                       const IOOptions& options, IODebugContext* dbg) {
  Place place = Locate(path);
  if (Status allowed = CheckChange(path, place, Change::kOverwrite); !allowed.ok())
    return ToIOStatus(allowed, "cannot truncate " + path);
  if (place.file_class == FileClass::kLogLane) {
    std::unique_ptr<FSWritableFile> file;
    IOStatus status = OpenLogLane(path, place, FileOptions(), true, &file, dbg);
    if (status.ok()) status = file->Truncate(size, options, dbg);
    return status.ok() ? file->Close(options, dbg) : status;
  }
  NoteOverwritten(place);
  IOStatus status = target()->Truncate(path, size, options, dbg);
  if (status.ok() && place.file_class == FileClass::kListed) {
    return place.bound->verdicts().WaitFor(ListIfFile(*target(), *place.bound, path, place.name),
                                           "cannot list " + path + " in the group");
  }
  return status;
}

Status HyperloopFileSystem::RenameInGroup(const Place& from, const Place& to,
                                          const std::string& from_path) {
  const bool from_log = from.file_class == FileClass::kLogLane;
  const bool to_log = to.file_class == FileClass::kLogLane;
  if (from_log && to_log) {
    Status renamed = from.bound->Rename(from.name, to.name);
    // An earlier call whose outcome was not known may have renamed it. RocksDB repeats such a call,
    // and an archived log's name never belonged to another log.
    const bool done = renamed.code() == Code::kNotFound && to.name.starts_with(kArchivePrefix) &&
                      to.bound->Lookup(to.name).ok();
    return done ? Status::Ok() : renamed;
  }
  if (to_log) {
    const std::string temporary = to.name + std::string(kImportSuffix);
    HL_RETURN_IF_ERROR(ImportLog(*target(), *to.bound, from_path, temporary));
    HL_RETURN_IF_ERROR(to.bound->Rename(temporary, to.name));
  }
  // The new name is not in the group. RocksDB renames a file to "….trash" before it deletes it.
  if (from_log || from.file_class == FileClass::kListed) return from.bound->Remove(from.name);
  return Status::Ok();
}

IOStatus HyperloopFileSystem::RenameFile(const std::string& from, const std::string& to,
                                         const IOOptions& options, IODebugContext* dbg) {
  Place source = Locate(from);
  Place destination = Locate(to);
  Status allowed = CheckChange(from, source, Change::kOverwrite);
  if (allowed.ok()) allowed = CheckChange(to, destination, Change::kOverwrite);
  if (allowed.ok()) allowed = CheckForeign(to, destination);
  if (allowed.ok()) allowed = CheckInfoLog(from);
  if (!allowed.ok()) return ToIOStatus(allowed, "cannot rename " + from + " to " + to);
  BoundDirectory* const bound =
      destination.bound != nullptr ? destination.bound.get() : source.bound.get();
  if (bound != nullptr) {
    Verdicts::InFlight in_flight(bound->verdicts());
    if (Status before = RenameInGroup(source, destination, from); !before.ok()) {
      if (destination.name == "CURRENT") bound->verdicts().NoteManifestFailed();
      in_flight.Decided();
      return bound->verdicts().WaitFor(before,
                                       "cannot rename " + from + " to " + to + " in the group");
    }
    NoteLogGone(source.name);
    // RocksDB gives the temporary file the number of the MANIFEST that it names.
    if (destination.name == "CURRENT" && source.file_class == FileClass::kLogLane) {
      const Result<std::vector<FileInfo>> files = bound->Files();
      if (files.ok()) bound->finished_logs().FoundCurrent(NumberOf(source.name), *files);
    }
  }
  NoteOverwritten(destination);
  IOStatus status =
      KeepFromMending(source, [&] { return target()->RenameFile(from, to, options, dbg); });
  if (!status.ok() && destination.name == "CURRENT") bound->verdicts().NoteManifestFailed();
  if (!status.ok() && bound != nullptr) return bound->verdicts().WaitFor(std::move(status));
  if (!status.ok() || destination.file_class != FileClass::kListed) return status;
  return destination.bound->verdicts().WaitFor(
      ListIfFile(*target(), *destination.bound, to, destination.name),
      "cannot list " + to + " in the group");
}

IOStatus HyperloopFileSystem::LinkFile(const std::string& from, const std::string& to,
                                       const IOOptions& options, IODebugContext* dbg) {
  Place destination = Locate(to);
  Status allowed = CheckChange(to, destination, Change::kCreate);
  if (allowed.ok()) allowed = CheckForeign(to, destination);
  if (!allowed.ok()) return ToIOStatus(allowed, "cannot link " + to);
  if (destination.file_class == FileClass::kLogLane) {
    // RocksDB copies the file then.
    return IOStatus::NotSupported("replicated files cannot be hard links: " + to);
  }
  IOStatus status = target()->LinkFile(from, to, options, dbg);
  if (!status.ok() || destination.file_class != FileClass::kListed) return status;
  return destination.bound->verdicts().WaitFor(
      ListIfFile(*target(), *destination.bound, to, destination.name),
      "cannot list " + to + " in the group");
}

IOStatus HyperloopFileSystem::NewLogger(const std::string& path, const IOOptions& options,
                                        std::shared_ptr<rocksdb::Logger>* logger,
                                        IODebugContext* dbg) {
  Status allowed = CheckProcess(Locate(path));
  if (allowed.ok()) allowed = CheckInfoLog(path);
  if (!allowed.ok()) return ToIOStatus(allowed, "cannot write " + path);
  IOStatus status = target()->NewLogger(path, options, logger, dbg);
  if (status.ok()) *logger = log_->Attach(path, std::move(*logger));
  return status;
}

FileOptions HyperloopFileSystem::OptimizeForLogWrite(const FileOptions& file_options,
                                                     const rocksdb::DBOptions& db_options) const {
  const std::shared_ptr<BoundDirectory> bound = Bound();
  if (spoken_of::IsOpening(bound.get())) LearnDbOptions(*bound, db_options);
  return target()->OptimizeForLogWrite(file_options, db_options);
}

void HyperloopFileSystem::LearnDbOptions(BoundDirectory& bound,
                                         const rocksdb::DBOptions& options) const {
  other_directories_.Learn(bound.directory(), options);
  if (options.manual_wal_flush) {
    bound.verdicts().NoteManualFlush();
    bound.WarnOnce(Warning::kManualFlush,
                   "manual_wal_flush is set: a write reaches the group only with FlushWAL or "
                   "sync=true, not when Put returns; the database must be reopened after the write "
                   "of a log failed");
  }
  if (options.recycle_log_file_num != 0) {
    bound.WarnOnce(Warning::kRecycling,
                   "recycle_log_file_num has no effect: replicated logs are created anew, the "
                   "old ones deleted");
  }
  WarnOfLongManifest(bound, options);
  WarnOfNoResuming(bound, options);
}

void HyperloopFileSystem::WarnOfNoResuming(BoundDirectory& bound,
                                           const rocksdb::DBOptions& options) {
  if (options.wal_compression != rocksdb::kNoCompression) {
    bound.WarnOnce(Warning::kCompression,
                   "wal_compression is set: what a compressed log holds is not looked into, so the "
                   "database must be reopened after the write of a log failed, and the end of a "
                   "prepared transaction has no room in a full data area");
  }
  if (!options.paranoid_checks) {
    bound.WarnOnce(Warning::kUnchecked,
                   "paranoid_checks is off: RocksDB does not resume after the write of a log "
                   "failed; writes fail until Flush is called or the database is reopened");
  }
}

void HyperloopFileSystem::NoteLogMade(BoundDirectory& bound, const std::string& name) {
  if (bound.HasWarned(Warning::kDeleted)) return;
  MutexLock lock(mutex_);
  const std::set<std::string> made = logs_made_;
  logs_made_.insert(name);
  lock.unlock();
  for (const std::string& each : made) {
    const std::string path = bound.directory() + "/" + each;
    if (!target()->FileExists(path, IOOptions(), nullptr).IsNotFound()) continue;
    lock.lock();
    const bool deleted_by_us = !logs_made_.contains(each);  // on another thread, just now
    lock.unlock();
    if (deleted_by_us) continue;
    bound.WarnOnce(Warning::kDeleted,
                   path +
                       " is in the group, and something else than the plugin deleted it here. "
                       "The group keeps such files until it is full. If the database has an "
                       "sst_file_manager, make it with the database's own Env: "
                       "NewSstFileManager(options.env)");
  }
}

void HyperloopFileSystem::NoteLogGone(const std::string& name) {
  MutexLock lock(mutex_);
  logs_made_.erase(name);
}

// RocksDB's default is beyond the room of most groups, and few MANIFESTs ever grow so large. So
// with the default one is named only once it did.
void HyperloopFileSystem::WarnOfLongManifest(BoundDirectory& bound,
                                             const rocksdb::DBOptions& options) {
  const uint64_t reserve = bound.store().statistics().data_bytes_reserved;
  if (reserve == 0 || options.max_manifest_file_size <= reserve) return;
  const bool chosen = options.max_manifest_file_size != rocksdb::DBOptions().max_manifest_file_size;
  if (!chosen && LongestManifest(bound.store()) <= reserve) return;
  bound.WarnOnce(Warning::kLongManifest,
                 "set max_manifest_file_size to " + std::to_string(reserve / 2) + ": " +
                     std::to_string(options.max_manifest_file_size) + " is beyond the " +
                     std::to_string(reserve) + " B that the group keeps for the MANIFEST, which " +
                     (chosen ? "would grow" : "has grown") +
                     " into the room of the logs before RocksDB begins a new one");
}

rocksdb::Status HyperloopFileSystem::RegisterDbPaths(const std::vector<std::string>& paths) {
  NotePathsRegistered(paths);
  return target()->RegisterDbPaths(paths);
}

rocksdb::Status HyperloopFileSystem::UnregisterDbPaths(const std::vector<std::string>& paths) {
  NotePathsUnregistered(paths);
  return target()->UnregisterDbPaths(paths);
}

void HyperloopFileSystem::NotePathsRegistered(const std::vector<std::string>& paths) {
  const std::shared_ptr<BoundDirectory> bound = Bound();
  other_directories_.Register(paths, spoken_of::Is(bound.get()) ? bound->directory() : "");
}

void HyperloopFileSystem::NotePathsUnregistered(const std::vector<std::string>& paths) {
  other_directories_.Unregister(paths);
}

bool HyperloopFileSystem::IsBeingOpened() const { return spoken_of::IsOpening(Bound().get()); }

}  // namespace hyperloop::plugin
