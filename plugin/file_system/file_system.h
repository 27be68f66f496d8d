// HyperloopFileSystem: the RocksDB FileSystem that replicates one database directory.
//
// Until a database directory is locked, every call passes to the local file system, except changes
// that the next open of a replicated directory would undo or miss: these are refused. Tools that
// only read never lock. LockFile(<dir>/LOCK) takes the group and binds the directory: local WAL,
// MANIFEST and CURRENT are set to the group's content before RocksDB reads them. From then on
// - bytes and names of WAL, MANIFEST and CURRENT go to the group, then to the directory, which is a
//   cache of the group;
// - SST, blob, OPTIONS and IDENTITY files are written to the directory, always fsynced. The group
//   lists them after they appear and until they are removed, and they are shipped whole to the
//   replicas. A record of the MANIFEST, which may name them, waits until they are there;
// - LOG, LOCK and temporary names are local only;
// - files outside (checkpoints, backups) are local only; the log says so once.
// UnlockFile releases the group. An object binds one directory at a time, and can bind again after
// UnlockFile.
//
// Order within one change: a name that RocksDB may rely on after a crash is in the group before it
// is in the directory, and a log's byte is on its way to the group before it is in the local file.
// A listed file is on the local disk whenever the group lists it. Reads always come from local
// files, also after the group was lost. Errors: see ToIOStatus. Thread safe, as FileSystem demands.
#pragma once

#include <rocksdb/file_system.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bound/bound_directory.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/replication/options.h"
#include "hyperloop/replication/store.h"
#include "info_log.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "opening/near_files.h"
#include "opening/pairing_file.h"
#include "quirks/other_directories.h"

namespace hyperloop::plugin {

// How a FileSystem reaches its group: by Store::Open, or in tests by a Store of the test.
using StoreOpener =
    std::function<Result<std::unique_ptr<Store>>(const StoreOptions&, std::shared_ptr<Log>)>;

// How it takes a group. The default is an opening by the program that uses the database.
struct Taking {
  // A group that holds no database is refused.
  bool must_hold_database = false;
  // It only makes the directory ready, for a program that is to open it.
  bool only_prepares = false;
  // Where tables and blob files are that the directory lacks.
  NearFiles near{};
};

class HyperloopFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  HyperloopFileSystem(const std::shared_ptr<rocksdb::FileSystem>& base, const StoreOptions& options,
                      StoreOpener open_store, Taking taking = {});
  ~HyperloopFileSystem() override;

  struct Remark {
    LogLevel level;
    std::string text;
  };
  // Ok if the directory could be bound to the group now, or the error with which LockFile would
  // refuse it. kBusy: a primary lives. It takes nothing and changes nothing. `remarks` gets the
  // warnings and errors of the opening before that; null: they are dropped.
  Status Examine(const std::string& directory, std::vector<Remark>* remarks = nullptr);

  // Whether the directory was bound and not released, and nobody has it open now.
  bool IsUnclean(const std::string& directory) const;

  // For a new file outside the bound directory. Ok for every file, unless it is a log or a table in
  // a directory that the open database's options name, which is NotSupported.
  rocksdb::IOStatus CheckElsewhere(const std::string& path) const;
  // Whether this thread has locked the directory, and RocksDB has not made its first log yet.
  bool IsBeingOpened() const;
  // What RegisterDbPaths and UnregisterDbPaths do, without telling the local file system.
  void NotePathsRegistered(const std::vector<std::string>& paths);
  void NotePathsUnregistered(const std::vector<std::string>& paths);

  static const char* kClassName() { return "hyperloop"; }
  const char* Name() const override { return kClassName(); }
  // The URI that holds all options as they are now.
  std::string GetId() const override;
  // Checks the options, and that the replicas answer (Store::Open). Takes no epoch and disturbs
  // nobody.
  rocksdb::Status PrepareOptions(const rocksdb::ConfigOptions& options) override;

  rocksdb::IOStatus LockFile(const std::string& path, const rocksdb::IOOptions& options,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;

  rocksdb::IOStatus NewSequentialFile(const std::string& path, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* dbg) override;
  // Of an unclean directory whose CURRENT was read: with the names of logs that only the group has.
  rocksdb::IOStatus GetChildren(const std::string& path, const rocksdb::IOOptions& options,
                                std::vector<std::string>* names,
                                rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* dbg) override;
  // Makes a new file and deletes the old one: replicated files are never overwritten in place.
  rocksdb::IOStatus ReuseWritableFile(const std::string& path, const std::string& old_path,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* dbg) override;
  // NotSupported for log-lane files.
  rocksdb::IOStatus NewRandomRWFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSRandomRWFile>* file,
                                    rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus NewMemoryMappedFileBuffer(
      const std::string& path, std::unique_ptr<rocksdb::MemoryMappedFileBuffer>* buffer) override;
  rocksdb::IOStatus DeleteFile(const std::string& path, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus Truncate(const std::string& path, size_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* dbg) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* dbg) override;

  rocksdb::IOStatus NewLogger(const std::string& path, const rocksdb::IOOptions& options,
                              std::shared_ptr<rocksdb::Logger>* logger,
                              rocksdb::IODebugContext* dbg) override;
  // The only call that carries DBOptions; RocksDB makes it before each new WAL. If those of the
  // database that is being opened name a directory that cannot be replicated, the following
  // NewWritableFile fails. Those of other databases mean nothing here (spoken_of.h).
  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& file_options,
                                           const rocksdb::DBOptions& db_options) const override;
  // If the bound database has a column family elsewhere, neither a WAL nor a table there can be
  // created until the family is dropped. Paths of other databases mean nothing here.
  rocksdb::Status RegisterDbPaths(const std::vector<std::string>& paths) override;
  rocksdb::Status UnregisterDbPaths(const std::vector<std::string>& paths) override;

 private:
  struct Place {
    std::shared_ptr<BoundDirectory> bound;  // null: no directory is bound
    std::string name;                       // relative to it; empty: the path is not in it
    FileClass file_class = FileClass::kOutside;
  };
  Place Locate(const std::string& path) const;
  // What a change does to a file that exists under the name.
  enum class Change : uint8_t { kCreate, kOverwrite };
  // Refuses changes in the bound directory by a forked child.
  static Status CheckProcess(const Place& place);
  // kBusy: it is the info log of a database that another process has open.
  static Status CheckInfoLog(const std::string& path);
  // What the group holds of what is read without locking. `bytes` is empty if it holds no database.
  struct Names {
    std::map<std::string, std::string> bytes;  // of CURRENT and the MANIFESTs, by name
    std::map<std::string, bool> logs;  // by name: whether the directory has the group's bytes
    std::string lost_log;  // one that has left the region and is not in the directory as listed
  };
  // Shows the group's files to `look`. It takes and changes nothing. kBusy: a primary lives.
  Status LookAtGroup(const std::string& directory,
                     const std::function<Status(const GroupFiles&)>& look) const;
  // They are all read, or it is an error. Errors as LookAtGroup.
  Result<Names> NamesOfGroup(const std::string& directory) const;
  Status CompareLogsThatLeft(const std::string& directory, const GroupFiles& group,
                             Names* read) const;
  // The bytes of a log that lies in the region. They are not kept. Errors as LookAtGroup.
  Result<std::string> LogOfGroup(const std::string& directory, const std::string& name) const;
  // What NamesOfGroup returns, or what was kept of it for a reader of `name`.
  std::shared_ptr<const Result<Names>> NamesFor(const std::string& directory,
                                                const std::string& name);
  // Warns once that what is read of the directory is not the group's.
  void WarnOfOldNames(const std::string& directory, const std::string& name, const Status& why);
  // Opens CURRENT, a MANIFEST or a log of a directory that is not bound here. Where it is unclean,
  // the bytes are the group's. What the group does not hold is the directory's. If the group cannot
  // be asked, all is, or, where CURRENT or MANIFEST is cut, the error says so.
  rocksdb::IOStatus OpenUnlocked(const std::string& path, const rocksdb::FileOptions& options,
                                 std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                 rocksdb::IODebugContext* dbg);
  // For a replicated database that is not open here: refuses to change a log, or to overwrite or
  // remove a table, a blob file or the pairing file. The next open would undo the change, or miss
  // the file.
  Status CheckUnbound(const std::string& path, const Place& place, Change change) const;
  // Both checks.
  Status CheckChange(const std::string& path, const Place& place, Change change) const;
  std::shared_ptr<BoundDirectory> Bound() const;

  Status Bind(const std::string& directory);
  // `anew`: the directory is bound to the group by this call, or was by one that was cut short
  // before the directory was set to what the group holds.
  Status TakeGroup(const std::string& directory, Store& store, std::shared_ptr<Decisions> decisions,
                   TakeResult* taken, bool* anew);
  // What TakeGroup asks for, and the directory's pairing file.
  Status MakeRequest(const std::string& directory, TakeRequest* request, PairingFile* file) const;
  // Decides with the group's files whether the directory can be opened with them.
  // `has_foreign_logs`: it is of no group, and holds log files.
  Status JudgeTaking(const std::string& directory, bool has_foreign_logs,
                     const GroupFiles& group) const;
  static Status RefuseCopy(const std::string& directory, const PairingFile& file);
  // Makes the file that tells IsUnclean that the directory is bound.
  Status MarkOpen(const std::string& directory) const;
  Status AdoptIfToldTo(BoundDirectory& bound);
  // The program is about to change this file of the directory, if it is a table or blob file.
  void NoteOverwritten(const Place& place);
  // Calls `call`, by which the file loses its name. If it is a table, blob file or log of the
  // directory, no mending gives the name back meanwhile.
  rocksdb::IOStatus KeepFromMending(const Place& place,
                                    const std::function<rocksdb::IOStatus()>& call) const;
  // As TakeRequest::mend_local.
  Status MendLocal(const std::string& directory, const WholeFile& file, const FetchWhole& fetch,
                   const std::function<bool()>& listed) const;
  void Unbind();

  // Warns once that files outside the bound directory are not replicated.
  static void WarnIfOutside(const std::string& path, const Place& place);
  // Checks whether a file may be created there.
  Status CheckCreation(const std::string& path, const Place& place) const;
  // kNotSupported: this thread is opening the database, and this first log of it is elsewhere.
  static Status CheckFirstLog(const std::string& path, const Place& place);
  // kNotSupported: it is a log or a table in a directory that options name and that is not
  // replicated. That holds whether the file is made, linked or renamed.
  Status CheckForeign(const std::string& path, const Place& place) const;
  void LearnDbOptions(BoundDirectory& bound, const rocksdb::DBOptions& options) const;
  // Warns of options with which RocksDB does not go on by itself after an outage.
  static void WarnOfNoResuming(BoundDirectory& bound, const rocksdb::DBOptions& options);
  // Warns once if logs that this process made are gone, and nobody asked this FileSystem to delete
  // them. Then remembers that it made `name`.
  void NoteLogMade(BoundDirectory& bound, const std::string& name);
  void NoteLogGone(const std::string& name);
  // Warns of a MANIFEST that may become longer than the group has room for it, or has become so.
  static void WarnOfLongManifest(BoundDirectory& bound, const rocksdb::DBOptions& options);
  // NewWritableFile or, with `reopen`, ReopenWritableFile.
  rocksdb::IOStatus OpenWritable(const std::string& path, const rocksdb::FileOptions& options,
                                 bool reopen, std::unique_ptr<rocksdb::FSWritableFile>* file,
                                 rocksdb::IODebugContext* dbg);
  // The same in the local file system.
  rocksdb::IOStatus OpenLocal(const std::string& path, const rocksdb::FileOptions& options,
                              bool reopen, std::unique_ptr<rocksdb::FSWritableFile>* file,
                              rocksdb::IODebugContext* dbg);
  rocksdb::IOStatus OpenLogLane(const std::string& path, const Place& place,
                                const rocksdb::FileOptions& options, bool reopen,
                                std::unique_ptr<rocksdb::FSWritableFile>* file,
                                rocksdb::IODebugContext* dbg);
  // Renames in the group, before the local file is renamed.
  Status RenameInGroup(const Place& from, const Place& to, const std::string& from_path);

  StoreOptions options_;  // registered with RocksDB's Customizable machinery: must be a member
  const StoreOpener open_store_;
  const std::shared_ptr<InfoLog> log_;
  Taking taking_;
  mutable OtherDirectories other_directories_;

  // It is held while a mended file is put in place, and locked after mutex_.
  mutable Mutex overwritten_mutex_;
  // Names of the files that were changed in place since the directory was bound.
  std::set<std::string> overwritten_ HL_GUARDED_BY(overwritten_mutex_);
  // It is never held during a call into a Store or another file system.
  mutable Mutex mutex_;
  std::shared_ptr<BoundDirectory> bound_ HL_GUARDED_BY(mutex_);
  rocksdb::FileLock* lock_ HL_GUARDED_BY(mutex_) = nullptr;  // the lock of the bound directory
  bool binding_now_ HL_GUARDED_BY(mutex_) = false;           // a LockFile is under way
  std::string prepared_ HL_GUARDED_BY(mutex_);  // the URI whose replicas answered PrepareOptions
  // By this FileSystem for bound_, and still in the group.
  std::set<std::string> logs_made_ HL_GUARDED_BY(mutex_);
  struct KeptNames {
    std::shared_ptr<const Result<Names>> names;
    std::chrono::steady_clock::time_point until;
  };
  // By directory, until LOCK is taken.
  std::map<std::string, KeptNames> names_of_group_ HL_GUARDED_BY(mutex_);
  std::set<std::string> warned_unclean_ HL_GUARDED_BY(mutex_);  // directories, by WarnOfOldNames
};

}  // namespace hyperloop::plugin
