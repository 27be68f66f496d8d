#include "primary/fork_guard.h"

#include <sys/mman.h>

#include <cstddef>

namespace hyperloop {
namespace {

constexpr size_t kPage = 4096;
char fallback = 1;  // without memory for a page, children cannot be told from their parent

}  // namespace

ForkGuard::ForkGuard() {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    page_ = &fallback;
    return;
  }
  page_ = static_cast<volatile char*>(page);
  *page_ = 1;
}

ForkGuard::~ForkGuard() {
  if (page_ != &fallback && owner()) munmap(const_cast<char*>(page_), kPage);
}

Status ForkGuard::Check() const {
  if (owner()) return {};
  return Fenced("this is a forked child; the group belongs to its parent");
}

}  // namespace hyperloop
