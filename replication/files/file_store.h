// FileStore: the whole files of one group that a replica keeps beside its pool (bulk lane).
//
// A finished file is NAME@CHECKSUM in one directory. So its name says which bytes it holds, and
// files that have had one name after each other do not collide. The '/' of an archived log's name
// is a backslash there, which no name has. A file that is still arriving is
// NAME@CHECKSUM-SIZE.part, and what has arrived of it stays when the process ends. A file gets its
// final name when all of its bytes are durable and pass the checksum. That name is durable when the
// call returns. A finished file that was found damaged is set aside as NAME@CHECKSUM.damaged: it is
// not held any more, and may arrive again.
//
// One process writes a store; others may read it at the same time. After a std::bad_alloc a store
// can be used further: the call that threw it was carried out, or can be made again. Not thread
// safe.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/uuid.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

// The only directory that a whole file's name may have: logs that RocksDB archives.
inline constexpr std::string_view kArchiveDirectory = "archive/";

// An archived log as it was called before; nullopt: `file` is no archived log. A replica may hold
// the same bytes under that name.
std::optional<WholeFile> BeforeArchived(const WholeFile& file);
// The one of the files of `held` that has the bytes of `file`, perhaps under its name before it was
// archived. Null: there is none.
const WholeFile* FindHeld(const std::set<WholeFile>& held, const WholeFile& file);

// Checks that a file of that name can be kept: the file table must allow the name, it must not
// begin with '.', and it must have no '/' except in "archive/". kInvalidArgument says why not.
Status CheckWholeFileName(std::string_view name);

// Whether a FileStore gives such names: to a finished, an arriving or a damaged file.
bool IsStoredName(std::string_view entry);

// The directory of a group's files, for a replica whose files lie in `root`.
std::string GroupDirectory(const std::string& root, const Uuid& group);

// Makes a directory that only this user may read, unless it exists. Its name is durable afterwards.
Status MakeDurableDirectory(const std::string& directory);

class FileStore {
 public:
  struct Stored {
    WholeFile file;
    uint64_t received = 0;  // bytes; file.size if it is finished
    bool finished = false;
  };

  // Makes the directory, but not its parent, when it is absent. kPermissionDenied: another user
  // owns it, or may write there.
  static Result<std::unique_ptr<FileStore>> Open(const std::string& directory);
  // Opens the directory only to read. kNotFound: it does not exist. Otherwise as Open.
  static Result<std::unique_ptr<FileStore>> OpenToRead(const std::string& directory);

  const std::string& directory() const { return directory_; }

  // Every file, finished or arriving. Directory entries that FileStore did not name are left out. A
  // file that is listed as finished is durable, and so is its name.
  Result<std::vector<Stored>> List();
  // Adds `bytes` at `offset` to an arriving file, and returns how many bytes have arrived in all.
  // With its last bytes the file is finished. If `offset` is not where the arriving file ends,
  // nothing changes, and the result says where to go on. kInvalidArgument: a bad name, no checksum,
  // or bytes beyond file.size. kCorruption: the bytes do not fit the checksum, and were dropped.
  // kNoSpace: what had arrived before stays. After a failed sync all that had arrived is dropped.
  // An archived log whose bytes are held under another name becomes a second name of them, and is
  // finished at once.
  Result<uint64_t> Write(const WholeFile& file, uint64_t offset, std::span<const std::byte> bytes);
  // Removes a file, finished or not. If there is none, that is no error.
  Status Remove(const WholeFile& file);
  // Reads bytes of a finished file from `offset` on into `out`. Returns how many; fewer than `out`
  // takes only at the file's end. kNotFound: there is no such finished file. kCorruption: the disk
  // cannot read these bytes. Other errors, such as that of a process without a free descriptor, say
  // nothing of the file.
  Result<uint64_t> Read(const WholeFile& file, uint64_t offset, std::span<std::byte> out) const;
  // Gives a finished file a second name, `path`, which must not exist. kNotFound: there is no such
  // finished file. kNotSupported: the file system, or its rules about other users' files, does not
  // allow that; then it has to be copied.
  Status Link(const WholeFile& file, const std::string& path) const;
  // Gives the file `path`, whose bytes the caller has compared with the checksum, the name of a
  // finished file here, which is durable when the call returns. Its bytes are durable already. If
  // there is such a file, nothing changes. Errors as Link, and kInvalidArgument as Write.
  Status LinkFrom(const std::string& path, const WholeFile& file);
  // Whether what `st` describes is a finished file of the store, under another name.
  bool IsLink(const WholeFile& file, const struct stat& st) const;
  // Makes the next Read of a finished file read the disk, whatever the page cache holds.
  void Uncache(const WholeFile& file) const;
  // Sets a finished file aside. Its bytes stay, and the call returns their path. Durable when it
  // returns. kNotFound: there is no such finished file.
  Result<std::string> SetAside(const WholeFile& file);
  // The directory entries of all files that were set aside, in order.
  Result<std::vector<std::string>> Aside() const;

 private:
  // The file that bytes arrive for.
  struct Arriving {
    WholeFile file;
    std::string name;  // of its directory entry
    UniqueFd fd;
    uint64_t received = 0;
    uint64_t durable = 0;
    FileChecksum checksum{};
  };

  FileStore(std::string directory, UniqueFd fd)
      : directory_(std::move(directory)), fd_(std::move(fd)) {}
  Result<bool> IsFinished(const WholeFile& file) const;
  // The names of all directory entries.
  Result<std::vector<std::string>> Entries() const;
  Status Begin(const WholeFile& file);
  // Whether the file became a second name of a finished one with the same bytes.
  Result<bool> LinkSame(const WholeFile& file);
  Status WriteAll(std::span<const std::byte> bytes);
  Status Finish();
  // Drops what has arrived. After a failed sync the page cache may hold bytes that the disk lacks.
  // Needs no memory.
  void GiveUpArriving() noexcept;
  // Makes all names durable that were given so far.
  Status SyncNames();
  std::string PathOf(const std::string& entry) const { return directory_ + "/" + entry; }

  const std::string directory_;
  const UniqueFd fd_;
  std::optional<Arriving> arriving_;
  bool names_durable_ = false;
};

}  // namespace hyperloop
