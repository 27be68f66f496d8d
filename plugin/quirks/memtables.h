// Finds out what the memtables of an open database hold, from the records of the log that it writes
// and from the newest version of its MANIFEST. It is used to judge an error, never on the path of a
// write.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// Whether the first `size` bytes of `log`, the directory's newest one, prove that the active
// memtable of a live column family holds an entry. The newest log can prove it, because RocksDB
// begins a new log whenever it makes a memtable immutable. Older logs prove nothing, because the
// flush of an immutable memtable may end at any time. The answer is also false for entries that
// this cannot see: those written without a log, commits of transactions that an older log prepared,
// and prepared entries of transactions with another policy than WRITE_COMMITTED. An error: a file
// cannot be read or parsed. kNotSupported: it is compressed, encrypted, or of a form that this
// build does not know.
Result<bool> MemtableHoldsAnything(rocksdb::FileSystem& fs, const std::string& directory,
                                   const std::string& log, uint64_t size);

}  // namespace hyperloop::plugin
