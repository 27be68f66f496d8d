#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop {

Result<RegionImage> RegionImage::Allocate(uint64_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return FromErrno(errno, Text("no memory for an image of ", size, " B"));
  return RegionImage(static_cast<std::byte*>(data), size);
}

RegionImage::RegionImage(RegionImage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

RegionImage& RegionImage::operator=(RegionImage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

RegionImage::~RegionImage() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace hyperloop
