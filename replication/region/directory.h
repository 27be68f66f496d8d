// Directories of files that must survive a power failure.
#pragma once

#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop {

// The directory in which the file or directory `path` lies: "." for a name alone. `path` has no
// slash at its end.
std::string DirectoryOf(const std::string& path);

// Makes the names in `directory` durable. The status is that of open or fsync.
Status SyncDirectory(const std::string& directory);

}  // namespace hyperloop
