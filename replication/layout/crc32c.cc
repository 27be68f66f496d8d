#include "layout/crc32c.h"

#include <isa-l/crc.h>

namespace hyperloop {

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  constexpr size_t kMost = size_t{1} << 30;  // ISA-L counts in int
  auto* p = static_cast<const unsigned char*>(data);
  while (size > kMost) {
    crc = crc32_iscsi(const_cast<unsigned char*>(p), static_cast<int>(kMost), crc);
    p += kMost;
    size -= kMost;
  }
  return crc32_iscsi(const_cast<unsigned char*>(p), static_cast<int>(size), crc);
}

}  // namespace hyperloop
