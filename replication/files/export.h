// Export: writes the log-lane files of a region image into a directory that stock RocksDB opens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "layout/region_layout.h"

namespace hyperloop {

struct ExportReport {
  uint64_t last_seq = 0;
  uint64_t files = 0;
  uint64_t bytes = 0;
  std::vector<std::string>
      missing;  // files whose bytes only the primary has (Lane::kLocal), by name
  std::vector<std::string> damage;  // extents that fail their checksum, a sentence each
};

// `image`: a private copy of a region; it is redone here (known_acked: see ScanLog). `directory`:
// absent or empty. The files are built beside it and renamed into place when all are durable, so
// the directory is whole or untouched. Symbolic links are never followed. The same image always
// gives the same bytes. kAlreadyExists: directory not empty. kCorruption: the log, the table or an
// extent is damaged, and the message names extent and file; nothing is written. `partial`: damaged
// extents are written as they are, and named in the report.
Result<ExportReport> ExportFiles(std::span<std::byte> image, const std::string& directory,
                                 uint64_t known_acked = 0, bool partial = false);

}  // namespace hyperloop
