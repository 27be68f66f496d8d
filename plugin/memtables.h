// What the memtables of an open database hold, as far as its own files tell: the records of its
// logs and the newest version of its MANIFEST. For judging an error, never on a write's path.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// Whether a log of the directory, `log` by its first `size` bytes, holds an entry that a memtable
// of a live column family must hold: no flush has reached it, and it is no prepared transaction
// without its commit. False also for what this cannot tell of: entries written without a log, and
// prepared entries of transactions with another policy than WRITE_COMMITTED. An error says that
// something does not parse.
Result<bool> MemtablesHoldAnything(rocksdb::FileSystem& fs, const std::string& directory,
                                   const std::string& log, uint64_t size);

}  // namespace hyperloop::plugin
