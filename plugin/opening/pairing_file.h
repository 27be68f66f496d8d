// The file <directory>/HYPERLOOP says to which group and database a directory belongs, and how to
// tell the directory from a copy of it.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Where a HYPERLOOP file is. A rename of the directory keeps device and inode; a copy has an inode
// of its own. The device counts only if the path differs too, because devices may get other numbers
// when a machine starts.
struct PairingPlace {
  std::string path;     // of the directory, absolute
  uint64_t device = 0;  // of the file HYPERLOOP
  uint64_t inode = 0;  // of that file; 0: not known (file of version 1, file system without inodes)
  friend bool operator==(const PairingPlace&, const PairingPlace&) = default;
};

struct PairingFile {
  Pairing pairing;        // empty strings: there is no such file
  std::string branch;     // TakeResult's; the installed header token.h reads it, too
  bool finished = true;   // the directory has been set to what the group holds since it was bound
  PairingPlace recorded;  // where the file was when it was written
  PairingPlace found;     // where it is now
  // Whether the directory is a copy, because the file is not where it was written. False if an
  // inode is not known.
  bool IsCopy() const;
};

// Reads the directory's file. Gives empty strings if there is none. kCorruption: its form or CRC is
// wrong; the message names the remedy.
Status ReadPairing(rocksdb::FileSystem& fs, const std::string& directory, PairingFile* file);
// Writes the file atomically (new file, fsync, rename, directory fsync), with its present place.
Status WritePairing(rocksdb::FileSystem& fs, const std::string& directory, const Pairing& pairing,
                    const std::string& branch, bool finished);

}  // namespace hyperloop::plugin
