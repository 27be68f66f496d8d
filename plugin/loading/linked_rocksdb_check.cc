#include "linked_rocksdb_check.h"

#include <errno.h>
#include <link.h>

#include <string_view>

#include "hyperloop/replication/linked_rocksdb.h"
#include "local/paths.h"

namespace hyperloop::plugin {
namespace {

// Sets `found`, a string, to the name of an object with RocksDB. Other than 0 ends the walk.
int LookAt(dl_phdr_info* object, size_t, void* found) {
  if (BaseOf(object->dlpi_name).starts_with("librocksdb")) return 0;  // this library, too
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & (PF_R | PF_W)) != PF_R) continue;
    const auto* bytes = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    if (!HoldsRocksDb({bytes, segment.p_filesz})) continue;
    const std::string_view name = object->dlpi_name;
    *static_cast<std::string*>(found) = name.empty() ? program_invocation_name : name;
    return 1;
  }
  return 0;
}

}  // namespace

std::string FindLinkedRocksDb() {
  std::string found;
  ::dl_iterate_phdr(LookAt, &found);
  return found;
}

}  // namespace hyperloop::plugin
