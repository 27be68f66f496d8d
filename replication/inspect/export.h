// Export: writes the database that a replica holds into a directory that stock RocksDB opens: the
// log-lane files from an image of its region, the others from its directory of whole files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"
#include "region/region_layout.h"

namespace hyperloop {

struct ExportReport {
  uint64_t last_seq = 0;
  uint64_t files = 0;
  uint64_t bytes = 0;
  // Listed files that the replica does not have, by name, but for tables, blob files and logs that
  // the MANIFEST neither names nor needs: these are unneeded. A primary that ends between listing a
  // file and naming it leaves such.
  std::vector<std::string> missing, unneeded;
  std::vector<std::string> damage;  // extents and files that fail their checksum, a sentence each
};

// Tables, blobs and logs are part of the database; OPTIONS and IDENTITY are written anew at open.
// RocksDB does not read archived logs then.
bool HoldsData(const std::string& name);

// Gives another image of the same region, newer than the ones before.
using NewerImage = std::function<Result<RegionImage>()>;

// `image`: a private copy of a region; it is redone here (known_acked: see ScanLog). `directory`:
// absent or empty. The files are built beside it and renamed into place when all are durable, so
// the directory is whole or untouched. Symbolic links are never followed. The same image always
// gives the same bytes. kAlreadyExists: directory not empty. kCorruption: the log, the table or an
// extent or a whole file is damaged, and the message names it; nothing is written. `partial`: what
// is damaged is written as it is, and named in the report. `files`: the replica's directory of
// whole files (GroupDirectory's root), in which nothing is changed; empty: it cannot be reached.
//
// `newer`: the group is in use; null: it is at rest. A file that HoldsData and the replica lacks is
// then either on its way, and is waited for, or was dropped since the image was taken. In that case
// a newer image takes the place of `image`, and only what it lists besides is copied. After 10 s in
// which nothing arrives, the file is missing.
Result<ExportReport> ExportFiles(std::span<std::byte> image, const std::string& directory,
                                 uint64_t known_acked = 0, bool partial = false,
                                 const std::string& files = "", const NewerImage& newer = nullptr);

}  // namespace hyperloop
