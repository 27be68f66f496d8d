// What the memtables of an open database hold, as far as its own files tell: the records of the log
// that it writes and the newest version of its MANIFEST. For judging an error, never on a write's
// path.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// Whether the first `size` bytes of `log`, the newest of the directory, hold an entry that the
// active memtable of a live column family must hold: RocksDB begins a new log whenever it puts a
// memtable aside. Entries of older logs prove nothing: the flush of an immutable memtable may end
// at any time. False also for what this cannot tell of: entries written without a log, commits of
// transactions that an older log prepared, and prepared entries of transactions with another policy
// than WRITE_COMMITTED. An error says that something does not parse.
Result<bool> MemtableHoldsAnything(rocksdb::FileSystem& fs, const std::string& directory,
                                   const std::string& log, uint64_t size);

}  // namespace hyperloop::plugin
