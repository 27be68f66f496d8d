// hyperloopctl verify --deep: reads a database as RocksDB does, with all checksums.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

struct DeepReport {
  uint64_t families = 0, keys = 0, bytes = 0;  // of keys and values
};

// Opens a directory read-only, as its OPTIONS say, reads every block of every table, and then every
// key of every family. Writes nothing there. kCorruption: what RocksDB found damaged, torn logs
// included. kNotFound: it holds no database. kNotSupported: it needs a comparator that only its
// service has. A merge operator of the service does not matter: operands are read, not merged.
Result<DeepReport> CheckDeeply(const std::string& directory);

}  // namespace hyperloop::plugin
