// CRC-32C (Castagnoli), as ISA-L computes it with the CPU's own instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop {

// Continues `crc`, which is a former result or any seed, over `size` more bytes. With text b behind
// text a, Crc32c(Crc32c(seed, a), b) equals Crc32c(seed, ab).
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

// Returns both Crc32c(a, data, size) and Crc32c(b, data, size). From kCrc32cTwiceFrom bytes on, the
// bytes are read only once, if the processor has carry-less multiplication.
struct Crc32cPair {
  uint32_t a = 0, b = 0;
};
inline constexpr size_t kCrc32cTwiceFrom = 512;
Crc32cPair Crc32cTwice(uint32_t a, uint32_t b, const void* data, size_t size);

}  // namespace hyperloop
