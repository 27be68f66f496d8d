// The two steps by which a damaged file of a bound directory is replaced with bytes of a replica.
#pragma once

#include <rocksdb/file_system.h>

#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Writes the bytes that `fetch` gives beside the file, durably. The file itself stays as it is.
// After an error nothing lies beside it.
Status BringBeside(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name,
                   const FetchWhole& fetch);
void RemoveBeside(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name);
// Sets the file aside in hyperloop-set-aside/damaged, and puts what lies beside it in its place.
// Whoever has the file open keeps the damaged bytes. An archived log may be missing. kNotFound: any
// other file is.
Status PutInPlace(rocksdb::FileSystem& fs, const std::string& directory, const std::string& name);

}  // namespace hyperloop::plugin
