// Reading RocksDB's log format, in which WAL and MANIFEST are written: blocks of 32 KiB, records
// with a checksum each. For judging files, never on a write's path.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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

// Calls `each` with every whole record in the first `size` bytes, put together from its parts,
// while it returns true. `number`: the log's; a recycled record of another log, and one that this
// build does not know, is kNotSupported.
Status ForEachRecord(const ReadAt& read, uint64_t size, uint64_t number,
                     const std::function<Result<bool>(std::string record)>& each);

// What a MANIFEST says of the newest version of its database.
struct ManifestContent {
  std::set<uint64_t> tables;  // numbers of live SST files
  std::set<uint64_t> blobs;   // of blob files that are not all garbage
  // Of each column family, by its id: no older log holds anything of it that is not in a table.
  std::map<uint64_t, uint64_t> log_numbers;
};
// kNotSupported: it holds what this build does not know, or does not parse.
Result<ManifestContent> ParseManifest(const ReadAt& read);

}  // namespace hyperloop::plugin
