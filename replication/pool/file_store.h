// FileStore: the whole files of one group that a replica keeps beside its pool (bulk lane).
//
// A finished file is NAME@CHECKSUM in one directory, so that the name says which bytes it holds,
// and files of one name that replaced each other do not meet. One that is still arriving is
// NAME@CHECKSUM-SIZE.part; what has arrived of it stays when the process ends. A file gets its
// final name when all of its bytes are durable and pass the checksum, and that name is durable when
// the call returns.
//
// One process writes a store; others may read it at the same time. Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/whole_file.h"
#include "layout/uuid.h"

namespace hyperloop {

// Whether a file of that name can be kept: what the file table allows, without '/', and not
// beginning with '.'. kInvalidArgument says why not.
Status CheckWholeFileName(std::string_view name);

// The directory of a group's files, for a replica whose files lie in `root`.
std::string GroupDirectory(const std::string& root, const Uuid& group);

// Makes a directory that only this user may read, and its name durable. One that exists is fine.
Status MakeDurableDirectory(const std::string& directory);

class FileStore {
 public:
  struct Stored {
    WholeFile file;
    uint64_t received = 0;  // file.size: finished
    bool finished = false;
  };

  // Makes the directory, but not its parent, when it is absent. kPermissionDenied: another user
  // owns it, or may write there.
  static Result<std::unique_ptr<FileStore>> Open(const std::string& directory);
  // For reading alone. kNotFound: there is none.
  static Result<std::unique_ptr<FileStore>> OpenToRead(const std::string& directory);

  const std::string& directory() const { return directory_; }

  // Every file, finished or arriving. Names that are no file's are left out.
  // What it calls finished is durable, its name included.
  Result<std::vector<Stored>> List();
  // Adds `bytes` at `offset` to an arriving file and returns how many have arrived; with the last
  // ones the file is finished. An `offset` that is not where the file ends changes nothing: the
  // result says where to go on. kCorruption: the bytes are not those of the checksum, and are
  // dropped. kNoSpace: what had arrived before stays.
  Result<uint64_t> Write(const WholeFile& file, uint64_t offset, std::span<const std::byte> bytes);
  // Removes a file, finished or not. One that is not there is no error.
  Status Remove(const WholeFile& file);
  // Bytes of a finished file from `offset` on; fewer than `out` takes at its end. kNotFound.
  Result<uint64_t> Read(const WholeFile& file, uint64_t offset, std::span<std::byte> out) const;

 private:
  // The file that bytes arrive for.
  struct Arriving {
    WholeFile file;
    UniqueFd fd;
    uint64_t received = 0;
    uint64_t durable = 0;
    FileChecksum checksum{};
  };

  FileStore(std::string directory, UniqueFd fd)
      : directory_(std::move(directory)), fd_(std::move(fd)) {}
  Result<bool> IsFinished(const WholeFile& file) const;
  Status Begin(const WholeFile& file);
  Status WriteAll(std::span<const std::byte> bytes);
  Status Finish();
  // Drops what has arrived: after a failed sync the page cache may hold what the disk does not.
  void GiveUpArriving();
  // Makes every name durable that was given so far.
  Status SyncNames();
  std::string PathOf(const std::string& entry) const { return directory_ + "/" + entry; }

  const std::string directory_;
  const UniqueFd fd_;
  std::optional<Arriving> arriving_;
  bool names_durable_ = false;
};

}  // namespace hyperloop
