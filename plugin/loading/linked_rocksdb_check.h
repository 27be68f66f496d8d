// Whether the preloaded library can help its host.
#pragma once

#include <string>

namespace hyperloop::plugin {

// The program or library of this process, other than librocksdb and this library, that has RocksDB
// linked into itself. Empty: none has. What such a RocksDB opens does not pass through here.
std::string FindLinkedRocksDb();

}  // namespace hyperloop::plugin
