// Which finished file leaves the region next. This is the decision alone; the session carries it
// out (session_leaving.cc).
//
// A log that RocksDB will soon delete is not worth shipping. So nothing leaves while the log-lane
// files occupy at most half of what logs may take. Beyond that the oldest finished file goes first,
// one at a time, because it is the one that something has kept alive for longest.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "hyperloop/replication/store.h"

namespace hyperloop {

// Of the data area, in bytes.
struct DataAreaUse {
  uint64_t size = 0;
  uint64_t reserved = 0;  // kept for MANIFEST and CURRENT
  uint64_t used = 0;      // by extents of files
};

// Whether finished files are to leave.
bool IsCrowded(const DataAreaUse& use);

// The file of `files` that is to leave next; nothing: none is. `finished`: files that get no more
// bytes. `refused`: those of them that could not leave just now.
std::optional<FileInfo> NextToLeave(const DataAreaUse& use, std::span<const FileInfo> files,
                                    const std::set<FileId>& finished,
                                    const std::set<FileId>& refused);

}  // namespace hyperloop
