// CRC-32C (Castagnoli), as ISA-L computes it with the CPU's own instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop {

// Continues `crc` (a former result, or any seed) over `size` more bytes:
// Crc32c(Crc32c(s, a), b) = Crc32c(s, ab).
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// Gives both Crc32c(a, data, size) and Crc32c(b, data, size). From kCrc32cTwiceFrom bytes on, on
// processors that can multiply without carries, the bytes are read only once.
struct Crc32cPair {
  uint32_t a = 0, b = 0;
};
inline constexpr size_t kCrc32cTwiceFrom = 512;
Crc32cPair Crc32cTwice(uint32_t a, uint32_t b, const void* data, size_t size);

}  // namespace hyperloop
