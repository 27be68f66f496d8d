#include "hyperloop/core/fork_detector.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>

#include "base/shared_memory.h"

namespace hyperloop {

Result<std::unique_ptr<ForkDetector>> ForkDetector::Create() {
  std::unique_ptr<ForkDetector> detector(new ForkDetector);
  void* page =
      mmap(nullptr, PageSize(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return FromErrno(errno, "mapping the page that detects fork");
  detector->word_ = new (page) std::atomic<uint32_t>(1);
  if (madvise(page, PageSize(), MADV_WIPEONFORK) != 0)
    return FromErrno(errno, "MADV_WIPEONFORK (needs Linux 4.14 or later)");
  return detector;
}

ForkDetector::~ForkDetector() {
  if (word_ != nullptr) munmap(word_, PageSize());
}

}  // namespace hyperloop
