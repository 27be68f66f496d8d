// BindingFileSystem: what FileSystem::Default() is where directories are bound (Bindings).
//
// Everything in a bound directory, and below it, goes to a HyperloopFileSystem of the binding's
// URI, and all the rest to RocksDB's own file system. A path is in a directory if it is there as it
// is spelled, or if it is there after symbolic links, "." and ".." are resolved; the directory's
// own links are resolved, too. Of several directories the deepest one counts.
//
// - The file system of a binding is made at the first call that goes there, and it reaches for its
//   group when RocksDB locks the directory (HyperloopFileSystem). A binding with a wrong URI
//   answers every call in its directory with the reason, and if it is not known which directories
//   are bound, every call at all is answered so.
// - Links and renames that enter or leave a bound directory are the business of its file system.
//   Between two of them there are none (NotSupported), as between two devices.
// - RocksDB tells a file system about directories that a database has elsewhere (wal_dir, db_paths,
//   cf_paths) without saying which database it is; each binding's file system finds out whether it
//   is its own (spoken_of.h). So these directories are refused as without bindings.
// - A directory that belongs to a group, and is not bound, cannot be locked: opening it here would
//   take it out of its group.
//
// Thread safe, as FileSystem demands.
#pragma once

#include <rocksdb/file_system.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file_system.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/replication/bindings.h"
#include "local/local_file_system.h"

namespace hyperloop::plugin {

class BindingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  BindingFileSystem(const std::shared_ptr<rocksdb::FileSystem>& local, Bindings bindings,
                    StoreOpener open_store);
  ~BindingFileSystem() override;

  static const char* kClassName() { return kBindingFileSystemName; }
  const char* Name() const override { return kClassName(); }

  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
                                        const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewMemoryMappedFileBuffer(
      const std::string& path, std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* buffer) override;
  rocksdb::IOStatus NewDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus FileExists(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetChildrenFileAttributes(const std::string& path,
                                              const rocksdb::IOOptions& options,
                                              std::vector<rocksdb::FileAttributes>* attributes,
                                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(const std::string& path, size_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus CreateDir(const std::string& path, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& path, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus DeleteDir(const std::string& path, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileSize(const std::string& path, const rocksdb::IOOptions& options,
                                uint64_t* size, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFileModificationTime(const std::string& path,
                                            const rocksdb::IOOptions& options, uint64_t* time,
                                            rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NumFileLinks(const std::string& path, const rocksdb::IOOptions& options,
                                 uint64_t* count, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus AreFilesSame(const std::string& first, const std::string& second,
                                 const rocksdb::IOOptions& options, bool* same,
                                 rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LockFile(const std::string& path, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* logger,
                              rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path, const rocksdb::IOOptions& options,
                                 uint64_t* bytes, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus IsDirectory(const std::string& path, const rocksdb::IOOptions& options,
                                bool* is_directory, rocksdb::IODebugContext* dbg) override;
  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& file_options,
                                           const rocksdb::DBOptions& db_options) const override;
  rocksdb::Status RegisterDbPaths(const std::vector<std::string>& paths) override;
  rocksdb::Status UnregisterDbPaths(const std::vector<std::string>& paths) override;

 private:
  struct Bound;
  // The deepest bound directory that `path` is in. Null: it is in none.
  Bound* Find(const std::string& path) const;
  // The one whose file system `fs` is. Null: it is not a binding's.
  Bound* BoundWith(const rocksdb::FileSystem& fs) const;
  // The binding's file system, or why there is none.
  Result<rocksdb::FileSystem*> FileSystemOf(Bound& bound) const;
  // The file system that `path` belongs to.
  Result<rocksdb::FileSystem*> Route(const std::string& path) const;
  // The one that a change of two names belongs to.
  Result<rocksdb::FileSystem*> Route(const std::string& from, const std::string& to) const;
  // What `call` returns with the file system of `path`, or why there is none.
  template <class Call>
  rocksdb::IOStatus In(const std::string& path, Call&& call) const;
  template <class Call>
  rocksdb::IOStatus Between(const std::string& from, const std::string& to, Call&& call) const;
  // For a new file outside every bound directory: whether a bound database that is open has no
  // business with its directory.
  rocksdb::IOStatus CheckElsewhere(const std::string& path) const;
  // Refuses to lock a directory that belongs to a group and is not bound.
  rocksdb::IOStatus CheckNotReplicated(const std::string& directory) const;
  // Calls `call` with each binding's file system that is made.
  template <class Call>
  void ForEachMade(Call&& call) const;

  const Status status_;
  const StoreOpener open_store_;
  std::vector<std::unique_ptr<Bound>> bound_;  // the deepest first

  mutable Mutex mutex_;
  // The locks of databases in bound directories.
  std::map<rocksdb::FileLock*, Bound*> locks_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::plugin
