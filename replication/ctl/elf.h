// Reads from an ELF file what decides whether a library can be preloaded into it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::ctl {

struct ElfInfo {
  uint16_t machine = 0;             // EM_…
  bool has_interpreter = false;     // false in an executable: statically linked
  std::vector<std::string> needed;  // DT_NEEDED, in order
  bool holds_rocksdb = false;       // RocksDB is linked into it
};

// Reads a 64-bit little-endian ELF file. Nothing in the file is trusted: every offset is checked
// against its size. kInvalidArgument: not ELF (a script is named with its interpreter), 32-bit or
// big-endian. kCorruption: its headers point outside the file. kNotFound, kPermissionDenied from
// the system.
Result<ElfInfo> ReadElf(const std::string& path);

// The same, of a file's bytes; `path` is for messages.
Result<ElfInfo> ParseElf(const std::string& bytes, const std::string& path);

}  // namespace hyperloop::ctl
