// The local side of a bound directory: these functions compare its log files with the group's and
// set them to the group's content. Replaced content is set aside, not deleted.
#pragma once

#include <rocksdb/file_system.h>

#include <functional>
#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/rocksdb_log.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// --- operations on local files; their errors name the file ---

// Makes the file `path` anew, has `fill` write it, fsyncs it if `sync`, and closes it. Other
// links to the former file of that name keep its bytes.
Status WriteWhole(rocksdb::FileSystem& fs, const std::string& path, bool sync,
                  const std::function<Status(rocksdb::FSWritableFile&)>& fill);
Status RenameOver(rocksdb::FileSystem& fs, const std::string& from, const std::string& to);
Status SyncDirectory(rocksdb::FileSystem& fs, const std::string& directory);
Status CreateDirectory(rocksdb::FileSystem& fs, const std::string& path);  // if it is missing
// Fsyncs a file, which may be one that this process may only read. kNotFound: there is no such
// file.
Status SyncLocal(const std::string& path);
// The file's size in bytes. kNotFound: there is no such file.
Result<uint64_t> SizeOf(rocksdb::FileSystem& fs, const std::string& path);
// What is said of a directory whose LOCK was refused so.
std::string InAnotherProcess(const std::string& directory, const rocksdb::IOStatus& locked);
// What a group lists of a local file. Reads all of it. kNotFound: there is no such file.
Result<WholeFile> Describe(rocksdb::FileSystem& fs, const std::string& path,
                           const std::string& name);
// Reads bytes of a local file and returns how many; fewer than `out` takes only at the file's end.
// kNotFound: there is no such file. kCorruption: it was opened, but the disk cannot read it.
Result<uint64_t> ReadLocal(rocksdb::FileSystem& fs, const std::string& path, uint64_t offset,
                           std::span<char> out);
// Opens a local file and returns a reader of it, or the reason why it cannot be opened.
Result<ReadAt> OpenReader(rocksdb::FileSystem& fs, const std::string& path);

// What a CURRENT says.
struct Current {
  std::string manifest;  // that it names; empty if it names none, or there is no CURRENT
  // A layer above the plugin has made its bytes into others, as RocksDB's encrypting file system
  // does: they are neither text nor zeros. Then no bytes of the database have a meaning here. They
  // can be compared, and names of files are as they always are.
  bool opaque = false;
};
// Enough of a CURRENT to tell. Layers may begin each file with a text of their own.
inline constexpr size_t kCurrentBytes = 8 << 10;
Current ReadCurrent(std::string_view bytes);
// The same of the directory's CURRENT.
Result<Current> LocalCurrent(rocksdb::FileSystem& fs, const std::string& directory);

// Adds the log-lane files in the directory and in its archive/, by names relative to the directory.
Status LocalLogFiles(rocksdb::FileSystem& fs, const std::string& directory,
                     std::vector<std::string>* names);

// How far a local file equals the group's: both sizes, and the offset of the first byte that
// differs (the smaller size if none does).
struct Comparison {
  bool exists = false;
  uint64_t local_size = 0;
  uint64_t equal = 0;
};
Result<Comparison> Compare(rocksdb::FileSystem& fs, const std::string& path,
                           const GroupFiles& group, const FileInfo& info);
// Whether the directory has the log-lane file with the group's bytes, and no others.
Result<bool> IsSame(rocksdb::FileSystem& fs, const std::string& directory, const GroupFiles& group,
                    const FileInfo& info);
// The MANIFEST with the greatest number; empty without one.
std::string NewestManifest(const std::vector<std::string>& names);
std::string NewestManifest(const GroupFiles& group);
// Whether only zeros, or no bytes at all, follow `offset`.
Result<bool> OnlyZerosFollow(rocksdb::FileSystem& fs, const std::string& path, uint64_t offset);

// A place below the directory for files that opening the directory replaces or removes. The place
// is made when the first file is put there. Only the operator removes it.
class SetAside {
 public:
  // `generation`: the epoch of the taking.
  SetAside(rocksdb::FileSystem& fs, const std::string& directory, uint64_t generation);
  // `place`: another name than that of an epoch.
  SetAside(rocksdb::FileSystem& fs, const std::string& directory, const std::string& place);
  // Moves the file `name` of the directory there.
  Status Keep(const std::string& name);
  // Gives the file `name` another name there, so that it is at no moment missing where it is. Moves
  // it if the file system has no hard links.
  Status KeepLinked(const std::string& name);
  // Copies the bytes of the file `name` from `offset` to its end there.
  Status KeepTail(const std::string& name, uint64_t offset);
  const std::string& path() const { return path_; }
  // The names of the files in that place.
  const std::vector<std::string>& names() const { return names_; }

 private:
  Result<std::string> PlaceFor(const std::string& name);

  rocksdb::FileSystem& fs_;
  const std::string directory_;
  const std::string path_;
  std::vector<std::string> names_;
};

struct ReconcileReport {
  std::vector<std::string> rewritten;  // content differed or was missing
  std::vector<std::string> cut;        // equal to the group's, but longer
  std::vector<std::string> removed;    // the group does not have them
};

// Makes every log and MANIFEST that lies in the region, and CURRENT, equal to the group's, by
// content. Those that have left the region are like tables: they are right already, and stay. A
// file that differs is written anew beside the old one and renamed over it, so that hard links, as
// checkpoints make them, keep the old bytes. Files that the group does not have are removed.
// Content that the group does not have is first moved to `aside`, unless it is only zeros.
//
// Tables and blob files that the group does not list are moved there too in two cases: a MANIFEST
// holds content that the group does not have, or the group has a database and the directory's
// CURRENT, or the MANIFEST that it names, is missing. All other files stay. MANIFEST and CURRENT
// are fsynced when they are written; `sync`: logs as well.
Status Reconcile(rocksdb::FileSystem& fs, const std::string& directory, const GroupFiles& group,
                 bool sync, SetAside* aside, ReconcileReport* report);

// The number of names and the first few of them: "3 (a, b, c)".
std::string Enumerate(const std::vector<std::string>& names);

}  // namespace hyperloop::plugin
