// Reads RocksDB's log format, in which WAL and MANIFEST are written: blocks of 32 KiB, records
// with a checksum each. It is used to judge files, never on the path of a write.
//
// It is here, and not in the plugin, because an export must tell whether a table that is missing
// belongs to the database, and hyperloopctl exports on hosts without RocksDB.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"

namespace hyperloop {

// Reads up to out.size() bytes at `offset` and returns how many; fewer only at the end of the file.
using ReadAt = std::function<Result<uint64_t>(uint64_t offset, std::span<char> out)>;

// Whether the record around `offset` is whole and has the checksum that its header says, so that it
// was written in this form. False for zeros, damage and a record that the file's end cuts.
Result<bool> IsSoundRecord(const ReadAt& read, uint64_t offset);

// Calls `each` with every whole record in the first `size` bytes, put together from its parts,
// until `each` returns false. `number` is the log's number. kNotSupported: a recycled record of
// another log, or a record of a type that this build does not know.
Status ForEachRecord(const ReadAt& read, uint64_t size, uint64_t number,
                     const std::function<Result<bool>(std::string record)>& each);

// What a MANIFEST says about the newest version of its database.
struct ManifestContent {
  std::set<uint64_t> tables;  // the numbers of the live SST files
  std::set<uint64_t> blobs;   // the numbers of the blob files that are not all garbage
  // The log number of each column family, by its id. Everything in older logs is in tables.
  std::map<uint64_t, uint64_t> log_numbers;
  uint64_t next_file = 0;  // greater than the number of each file that it knows of
  // No older log is needed: the least of those, or the oldest one that two-phase commit needs.
  uint64_t oldest_log = 0;
};
// kNotSupported: the MANIFEST holds something that this build does not know, or it does not parse.
Result<ManifestContent> ParseManifest(const ReadAt& read);

// Whether it names the table or blob file NNNNNN.sst or NNNNNN.blob, or needs the log NNNNNN.log.
bool NamesOrNeeds(const ManifestContent& content, std::string_view name);

// How a table or blob file of so many bytes ends: as RocksDB finishes such files, with zeros, or
// otherwise, as an encrypted one does.
enum class FileEnd : uint8_t { kFinished, kZeros, kOther };
Result<FileEnd> EndOf(const ReadAt& read, uint64_t size);

}  // namespace hyperloop
