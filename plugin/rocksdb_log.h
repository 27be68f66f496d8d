// Reading RocksDB's log format, in which WAL and MANIFEST are written: blocks of 32 KiB, records
// with a checksum each. For judging files, never on a write's path.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// Up to out.size() bytes at `offset`; fewer only at the end of the file.
using ReadAt = std::function<Result<uint64_t>(uint64_t offset, std::span<char> out)>;

// Whether the record around `offset` is whole and has the checksum that its header says: somebody
// wrote it so. False for zeros, damage and a record that the file's end cuts.
Result<bool> IsSoundRecord(const ReadAt& read, uint64_t offset);

// The number of whole records with payload in the first `size` bytes, at most `enough`.
Result<int> CountRecords(const ReadAt& read, uint64_t size, int enough);

// What a MANIFEST says of the newest version of its database.
struct ManifestContent {
  std::set<uint64_t> tables;    // numbers of live SST files
  std::set<uint64_t> blobs;     // of blob files that are not all garbage
  uint64_t min_log_number = 0;  // no older log holds anything that is not in a table
};
// kNotSupported: it holds what this build does not know, or does not parse.
Result<ManifestContent> ParseManifest(const ReadAt& read);

}  // namespace hyperloop::plugin
