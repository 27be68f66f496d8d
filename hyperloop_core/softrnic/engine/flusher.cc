#include "softrnic/engine/flusher.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hyperloop::softrnic {

namespace {

bool Sync(const FileRange& range) {
  // A file that was truncated within its last page causes no fault, so its bytes would be lost
  // silently.
  struct stat info {};
  if (range.fd >= 0 &&
      (fstat(range.fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < range.file_end))
    return false;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(range.begin) & ~(page - 1);
  return msync(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(range.end) - begin,
               MS_SYNC) == 0;
}

}  // namespace

bool MakeDurable(const FileRange& range) {
  if (range.failed != nullptr && range.failed->load(std::memory_order_relaxed)) return false;
  const bool durable = Sync(range);
  if (!durable && range.failed != nullptr) range.failed->store(true, std::memory_order_relaxed);
  return durable;
}

}  // namespace hyperloop::softrnic
