// Two CRCs of the same bytes, which is less work than computing each alone.
#pragma once

#include "hyperloop/replication/crc32c.h"

namespace hyperloop {

// Returns both Crc32c(a, data, size) and Crc32c(b, data, size). From kCrc32cTwiceFrom bytes on, the
// bytes are read only once, if the processor has carry-less multiplication.
struct Crc32cPair {
  uint32_t a = 0, b = 0;
};
inline constexpr size_t kCrc32cTwiceFrom = 512;
Crc32cPair Crc32cTwice(uint32_t a, uint32_t b, const void* data, size_t size);

}  // namespace hyperloop
