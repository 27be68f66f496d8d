// <directory>/HYPERLOOP: which group and database a directory belongs to, and what tells the
// directory from a copy of it.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Where a HYPERLOOP file is. A rename of the directory keeps device and inode; a copy has an inode
// of its own. The inode decides: devices are numbered anew when a machine starts.
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
  // Somebody copied the directory: its file lies elsewhere than it was written. Without inodes
  // nothing is known, and it is none.
  bool IsCopy() const;
};

// Absent: empty strings. Damaged (form or CRC): kCorruption, with the remedy.
Status ReadPairing(rocksdb::FileSystem& fs, const std::string& directory, PairingFile* file);
// Writes it atomically (new file, fsync, rename, directory fsync), with the place where it is.
Status WritePairing(rocksdb::FileSystem& fs, const std::string& directory, const Pairing& pairing);

}  // namespace hyperloop::plugin
