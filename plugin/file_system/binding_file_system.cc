#include "binding_file_system.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "local/paths.h"
#include "local/status.h"
#include "quirks/spoken_of.h"

namespace hyperloop::plugin {
namespace {

namespace stdfs = std::filesystem;

// The path from the root, without "." and repeated or trailing slashes. Links are not followed.
// Empty: it has "..", which can be understood only if links are.
std::string Spelled(const std::string& path) {
  std::error_code error;
  const stdfs::path absolute = stdfs::absolute(path, error);
  if (error || std::find(absolute.begin(), absolute.end(), "..") != absolute.end()) return "";
  std::string normal = absolute.lexically_normal();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

// The path from the root with links, "." and ".." resolved as far as it exists.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const stdfs::path absolute = stdfs::absolute(path, error);
  std::string normal = error ? path : std::string(stdfs::weakly_canonical(absolute, error));
  if (error) return Spelled(path);
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

bool IsIn(const std::string& path, const std::string& directory) {
  return path.starts_with(directory) &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

// The MANIFEST of a database that is in no bound directory. RocksDB speaks of that database from
// then on.
class OtherManifest final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  explicit OtherManifest(std::unique_ptr<rocksdb::FSWritableFile>&& file)
      : FSWritableFileOwnerWrapper(std::move(file)) {}
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* dbg) override {
    spoken_of::Nothing();
    return target()->Append(data, options, dbg);
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& info,
                           rocksdb::IODebugContext* dbg) override {
    spoken_of::Nothing();
    return target()->Append(data, options, info, dbg);
  }
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     rocksdb::IODebugContext* dbg) override {
    spoken_of::Nothing();
    return target()->PositionedAppend(data, offset, options, dbg);
  }
  rocksdb::IOStatus PositionedAppend(const rocksdb::Slice& data, uint64_t offset,
                                     const rocksdb::IOOptions& options,
                                     const rocksdb::DataVerificationInfo& info,
                                     rocksdb::IODebugContext* dbg) override {
    spoken_of::Nothing();
    return target()->PositionedAppend(data, offset, options, info, dbg);
  }
};

// `file` was opened in the local file system.
void NoteOtherManifest(const std::string& path, std::unique_ptr<rocksdb::FSWritableFile>* file) {
  if (IsManifest(BaseOf(path))) *file = std::make_unique<OtherManifest>(std::move(*file));
}

}  // namespace

using rocksdb::FileLock;
using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

struct BindingFileSystem::Bound {
  Bound(DirectoryBinding of) : binding(std::move(of)) {}
  const DirectoryBinding binding;
  std::once_flag once;
  std::unique_ptr<HyperloopFileSystem> fs;  // made by `once`
  std::atomic<bool> made{false};            // whether fs may be read without `once`
};

BindingFileSystem::BindingFileSystem(const std::shared_ptr<FileSystem>& local, Bindings bindings,
                                     StoreOpener open_store)
    : FileSystemWrapper(local),
      status_(std::move(bindings.status)),
      open_store_(std::move(open_store)) {
  std::stable_sort(bindings.list.begin(), bindings.list.end(),
                   [](const DirectoryBinding& a, const DirectoryBinding& b) {
                     return a.directory.size() > b.directory.size();
                   });
  for (DirectoryBinding& binding : bindings.list)
    bound_.push_back(std::make_unique<Bound>(std::move(binding)));
}

BindingFileSystem::~BindingFileSystem() = default;

BindingFileSystem::Bound* BindingFileSystem::Find(const std::string& path) const {
  const std::string resolved = Resolved(path);
  for (const auto& bound : bound_) {
    if (IsIn(resolved, Resolved(bound->binding.directory))) return bound.get();
  }
  const std::string spelled = Spelled(path);
  for (const auto& bound : bound_) {
    if (IsIn(spelled, bound->binding.directory)) return bound.get();
  }
  return nullptr;
}

Result<FileSystem*> BindingFileSystem::FileSystemOf(Bound& bound) const {
  const DirectoryBinding& binding = bound.binding;
  if (!binding.status.ok())
    return binding.status.WithContext(binding.origin + " for " + binding.directory);
  std::call_once(bound.once, [&] {
    bound.fs = std::make_unique<HyperloopFileSystem>(target_, binding.options, open_store_);
    bound.made.store(true, std::memory_order_release);
  });
  return bound.fs.get();
}

Result<FileSystem*> BindingFileSystem::Route(const std::string& path) const {
  HL_RETURN_IF_ERROR(status_);
  Bound* const bound = Find(path);
  if (bound == nullptr) return target();
  return FileSystemOf(*bound);
}

Result<FileSystem*> BindingFileSystem::Route(const std::string& from, const std::string& to) const {
  HL_ASSIGN_OR_RETURN(FileSystem* const source, Route(from));
  HL_ASSIGN_OR_RETURN(FileSystem* const destination, Route(to));
  if (source == destination || destination == target()) return source;
  if (source == target()) return destination;
  return NotSupported(from + " and " + to +
                      " belong to different replicated directories, which are like different "
                      "devices: copy the file");
}

template <class Call>
IOStatus BindingFileSystem::In(const std::string& path, Call&& call) const {
  const Result<FileSystem*> fs = Route(path);
  return fs.ok() ? call(**fs) : ToIOStatus(fs.status(), "hyperloop: " + path);
}

template <class Call>
IOStatus BindingFileSystem::Between(const std::string& from, const std::string& to,
                                    Call&& call) const {
  const Result<FileSystem*> fs = Route(from, to);
  return fs.ok() ? call(**fs) : ToIOStatus(fs.status(), "hyperloop: " + to);
}

BindingFileSystem::Bound* BindingFileSystem::BoundWith(const FileSystem& fs) const {
  for (const auto& bound : bound_) {
    if (bound->made.load(std::memory_order_acquire) && bound->fs.get() == &fs) return bound.get();
  }
  return nullptr;
}

IOStatus BindingFileSystem::CheckElsewhere(const std::string& path) const {
  for (const auto& bound : bound_) {
    if (!bound->made.load(std::memory_order_acquire)) continue;
    if (IOStatus allowed = bound->fs->CheckElsewhere(path); !allowed.ok()) return allowed;
  }
  return IOStatus::OK();
}

IOStatus BindingFileSystem::CheckNotReplicated(const std::string& directory) const {
  const std::string pairing = directory + "/" + std::string(kPairingFileName);
  if (!target()->FileExists(pairing, IOOptions(), nullptr).ok()) return IOStatus::OK();
  std::string names;
  for (const auto& bound : bound_) names += " " + bound->binding.directory;
  return ToIOStatus(
      PermissionDenied(directory +
                       " holds a replicated database and is none of the bound directories: bind "
                       "it, or move " +
                       pairing + " away, which makes it a plain directory. Bound are" + names),
      "hyperloop");
}

template <class Call>
void BindingFileSystem::ForEachMade(Call&& call) const {
  for (const auto& bound : bound_) {
    if (bound->made.load(std::memory_order_acquire)) call(*bound->fs);
  }
}

IOStatus BindingFileSystem::NewSequentialFile(const std::string& path, const FileOptions& options,
                                              std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                              IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) {
    if (&fs == target() && IsManifest(BaseOf(path))) spoken_of::ReadsManifest(nullptr);
    return fs.NewSequentialFile(path, options, file, dbg);
  });
}

IOStatus BindingFileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                                std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                                IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.NewRandomAccessFile(path, options, file, dbg); });
}

IOStatus BindingFileSystem::NewWritableFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<rocksdb::FSWritableFile>* file,
                                            IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) {
    const bool elsewhere = &fs == target();
    IOStatus opened = elsewhere ? CheckElsewhere(path) : IOStatus::OK();
    if (opened.ok()) opened = fs.NewWritableFile(path, options, file, dbg);
    if (opened.ok() && elsewhere) NoteOtherManifest(path, file);
    return opened;
  });
}

IOStatus BindingFileSystem::ReopenWritableFile(const std::string& path, const FileOptions& options,
                                               std::unique_ptr<rocksdb::FSWritableFile>* file,
                                               IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) {
    const bool elsewhere = &fs == target();
    IOStatus opened = elsewhere ? CheckElsewhere(path) : IOStatus::OK();
    if (opened.ok()) opened = fs.ReopenWritableFile(path, options, file, dbg);
    if (opened.ok() && elsewhere) NoteOtherManifest(path, file);
    return opened;
  });
}

IOStatus BindingFileSystem::ReuseWritableFile(const std::string& path, const std::string& old_path,
                                              const FileOptions& options,
                                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                                              IODebugContext* dbg) {
  return Between(old_path, path, [&](FileSystem& fs) {
    const IOStatus allowed = &fs == target() ? CheckElsewhere(path) : IOStatus::OK();
    return allowed.ok() ? fs.ReuseWritableFile(path, old_path, options, file, dbg) : allowed;
  });
}

IOStatus BindingFileSystem::NewRandomRWFile(const std::string& path, const FileOptions& options,
                                            std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                            IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.NewRandomRWFile(path, options, file, dbg); });
}

IOStatus BindingFileSystem::NewMemoryMappedFileBuffer(
    const std::string& path, std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* buffer) {
  return In(path, [&](FileSystem& fs) { return fs.NewMemoryMappedFileBuffer(path, buffer); });
}

IOStatus BindingFileSystem::NewDirectory(const std::string& path, const IOOptions& options,
                                         std::unique_ptr<rocksdb::FSDirectory>* directory,
                                         IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.NewDirectory(path, options, directory, dbg); });
}

IOStatus BindingFileSystem::FileExists(const std::string& path, const IOOptions& options,
                                       IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.FileExists(path, options, dbg); });
}

IOStatus BindingFileSystem::GetChildren(const std::string& path, const IOOptions& options,
                                        std::vector<std::string>* names, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.GetChildren(path, options, names, dbg); });
}

IOStatus BindingFileSystem::GetChildrenFileAttributes(
    const std::string& path, const IOOptions& options,
    std::vector<rocksdb::FileAttributes>* attributes, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) {
    return fs.GetChildrenFileAttributes(path, options, attributes, dbg);
  });
}

IOStatus BindingFileSystem::DeleteFile(const std::string& path, const IOOptions& options,
                                       IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.DeleteFile(path, options, dbg); });
}

IOStatus BindingFileSystem::Truncate(const std::string& path, size_t size, const IOOptions& options,
                                     IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.Truncate(path, size, options, dbg); });
}

IOStatus BindingFileSystem::CreateDir(const std::string& path, const IOOptions& options,
                                      IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.CreateDir(path, options, dbg); });
}

IOStatus BindingFileSystem::CreateDirIfMissing(const std::string& path, const IOOptions& options,
                                               IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.CreateDirIfMissing(path, options, dbg); });
}

IOStatus BindingFileSystem::DeleteDir(const std::string& path, const IOOptions& options,
                                      IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.DeleteDir(path, options, dbg); });
}

IOStatus BindingFileSystem::GetFileSize(const std::string& path, const IOOptions& options,
                                        uint64_t* size, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.GetFileSize(path, options, size, dbg); });
}

IOStatus BindingFileSystem::GetFileModificationTime(const std::string& path,
                                                    const IOOptions& options, uint64_t* time,
                                                    IODebugContext* dbg) {
  return In(path,
            [&](FileSystem& fs) { return fs.GetFileModificationTime(path, options, time, dbg); });
}

IOStatus BindingFileSystem::RenameFile(const std::string& from, const std::string& to,
                                       const IOOptions& options, IODebugContext* dbg) {
  return Between(from, to, [&](FileSystem& fs) {
    const IOStatus allowed = &fs == target() ? CheckElsewhere(to) : IOStatus::OK();
    return allowed.ok() ? fs.RenameFile(from, to, options, dbg) : allowed;
  });
}

IOStatus BindingFileSystem::LinkFile(const std::string& from, const std::string& to,
                                     const IOOptions& options, IODebugContext* dbg) {
  return Between(from, to, [&](FileSystem& fs) {
    const IOStatus allowed = &fs == target() ? CheckElsewhere(to) : IOStatus::OK();
    return allowed.ok() ? fs.LinkFile(from, to, options, dbg) : allowed;
  });
}

IOStatus BindingFileSystem::NumFileLinks(const std::string& path, const IOOptions& options,
                                         uint64_t* count, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.NumFileLinks(path, options, count, dbg); });
}

IOStatus BindingFileSystem::AreFilesSame(const std::string& first, const std::string& second,
                                         const IOOptions& options, bool* same,
                                         IODebugContext* dbg) {
  return In(first,
            [&](FileSystem& fs) { return fs.AreFilesSame(first, second, options, same, dbg); });
}

IOStatus BindingFileSystem::NewLogger(const std::string& path, const IOOptions& options,
                                      std::shared_ptr<rocksdb::Logger>* logger,
                                      IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.NewLogger(path, options, logger, dbg); });
}

IOStatus BindingFileSystem::GetFreeSpace(const std::string& path, const IOOptions& options,
                                         uint64_t* bytes, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.GetFreeSpace(path, options, bytes, dbg); });
}

IOStatus BindingFileSystem::IsDirectory(const std::string& path, const IOOptions& options,
                                        bool* is_directory, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) { return fs.IsDirectory(path, options, is_directory, dbg); });
}

IOStatus BindingFileSystem::LockFile(const std::string& path, const IOOptions& options,
                                     FileLock** lock, IODebugContext* dbg) {
  return In(path, [&](FileSystem& fs) {
    if (BaseOf(path) != kLockFileName) return fs.LockFile(path, options, lock, dbg);
    IOStatus locked = &fs == target() ? CheckNotReplicated(ParentOf(path)) : IOStatus::OK();
    if (locked.ok()) locked = fs.LockFile(path, options, lock, dbg);
    if (!locked.ok()) return locked;
    Bound* const bound = BoundWith(fs);
    if (bound == nullptr) {
      spoken_of::Nothing();
      return locked;
    }
    MutexLock guard(mutex_);
    locks_[*lock] = bound;
    return locked;
  });
}

IOStatus BindingFileSystem::UnlockFile(FileLock* lock, const IOOptions& options,
                                       IODebugContext* dbg) {
  Bound* bound = nullptr;
  {
    MutexLock guard(mutex_);
    const auto found = locks_.find(lock);
    if (found != locks_.end()) {
      bound = found->second;
      locks_.erase(found);
    }
  }
  if (bound == nullptr) return target()->UnlockFile(lock, options, dbg);
  return bound->fs->UnlockFile(lock, options, dbg);
}

FileOptions BindingFileSystem::OptimizeForLogWrite(const FileOptions& file_options,
                                                   const rocksdb::DBOptions& db_options) const {
  const FileSystem* fs = target();
  ForEachMade([&](HyperloopFileSystem& each) {
    if (each.IsBeingOpened()) fs = &each;
  });
  return fs->OptimizeForLogWrite(file_options, db_options);
}

rocksdb::Status BindingFileSystem::RegisterDbPaths(const std::vector<std::string>& paths) {
  ForEachMade([&](HyperloopFileSystem& each) { each.NotePathsRegistered(paths); });
  return target()->RegisterDbPaths(paths);
}

rocksdb::Status BindingFileSystem::UnregisterDbPaths(const std::vector<std::string>& paths) {
  ForEachMade([&](HyperloopFileSystem& each) { each.NotePathsUnregistered(paths); });
  return target()->UnregisterDbPaths(paths);
}

}  // namespace hyperloop::plugin
