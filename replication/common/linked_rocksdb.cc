#include "hyperloop/replication/linked_rocksdb.h"

#include <string.h>

#include <string>

namespace hyperloop {
namespace {

// The text is put together here, so that no program of ours holds it.
bool Holds(std::string_view bytes, const char* first, const char* second) {
  const std::string text = std::string(first) + second;
  return memmem(bytes.data(), bytes.size(), text.data(), text.size()) != nullptr;
}

}  // namespace

bool HoldsRocksDb(std::string_view bytes) {
  return Holds(bytes, "unknown Write", "Batch tag") && Holds(bytes, "rocksdb.block", ".cache.miss");
}

}  // namespace hyperloop
