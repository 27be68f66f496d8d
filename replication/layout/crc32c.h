// CRC-32C (Castagnoli), as ISA-L computes it with the CPU's own instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop {

// Continues `crc` (a former result, or any seed) over `size` more bytes. Crc32c(Crc32c(s, a), b) =
// Crc32c(s, ab).
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace hyperloop
