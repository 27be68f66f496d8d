// The local side of a bound directory: the pairing file, and setting WAL, MANIFEST and CURRENT to
// the group's content.
#pragma once

#include <rocksdb/file_system.h>

#include <string>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Reads <directory>/HYPERLOOP. Absent: empty strings. Damaged (form or CRC): kCorruption, with the
// remedy.
Status ReadPairing(rocksdb::FileSystem& fs, const std::string& directory, Pairing* pairing);
// Writes it atomically (new file, fsync, rename, directory fsync).
Status WritePairing(rocksdb::FileSystem& fs, const std::string& directory, const Pairing& pairing);

// Names of the log-lane files that are in the directory and its archive/, relative to it.
Status LocalLogFiles(rocksdb::FileSystem& fs, const std::string& directory,
                     std::vector<std::string>* names);

struct ReconcileReport {
  std::vector<std::string> rewritten;  // content differed or was missing
  std::vector<std::string> cut;        // right so far, but longer than the group's
  std::vector<std::string> removed;    // the group does not have them
  std::vector<std::string> missing;    // listed by the group, bytes only here, and not here
};

// Makes every log-lane file of the directory equal to the group's, by content: what differs is
// written anew beside the old one and renamed over it (hard links, as checkpoints make them, keep
// the old bytes), longer tails are cut, what the group does not have is removed. Files of the local
// lane are left alone; those that are missing are reported. `sync`: fsync what was written.
Status Reconcile(rocksdb::FileSystem& fs, const std::string& directory, Store& store, bool sync,
                 ReconcileReport* report);

// "3 (a, b, c)"; at most a few names.
std::string Enumerate(const std::vector<std::string>& names);

}  // namespace hyperloop::plugin
