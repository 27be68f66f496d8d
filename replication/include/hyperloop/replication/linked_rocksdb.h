// Whether a program or library has RocksDB linked into itself. A preloaded plugin cannot help
// there, because it speaks to the shared librocksdb.
#pragma once

#include <string_view>

namespace hyperloop {

// `bytes`: of the file, or of its read-only part in memory. RocksDB is recognised by texts that
// every release since 5.0 holds, so that symbols are not needed.
bool HoldsRocksDb(std::string_view bytes);

}  // namespace hyperloop
