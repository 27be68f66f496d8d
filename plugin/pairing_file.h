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
// of its own. The inode decides, because devices may get other numbers when a machine starts.
struct PairingPlace {
  std::string path;     // absolute, of the directory
  uint64_t device = 0;  // of the file HYPERLOOP
  uint64_t inode = 0;   // 0: not known (a file of version 1; a file system that has none)
  friend bool operator==(const PairingPlace&, const PairingPlace&) = default;
};

struct PairingFile {
  Pairing pairing;        // empty strings: there is no such file
  PairingPlace recorded;  // when it was written
  PairingPlace found;     // now
  // Whether the directory is a copy: its file is not where it was written. False if inodes are not
  // known.
  bool IsCopy() const;
};

// Gives empty strings if the file is absent. kCorruption, with the remedy: its form or CRC is
// wrong.
Status ReadPairing(rocksdb::FileSystem& fs, const std::string& directory, PairingFile* file);
// Writes it atomically (new file, fsync, rename, directory fsync), with the place where it is.
Status WritePairing(rocksdb::FileSystem& fs, const std::string& directory, const Pairing& pairing);

}  // namespace hyperloop::plugin
