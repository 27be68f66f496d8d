// CRC-32C (Castagnoli), as ISA-L computes it with the CPU's own instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop {

// Continues `crc`, which is a former result or any seed, over `size` more bytes. With text b behind
// text a, Crc32c(Crc32c(seed, a), b) equals Crc32c(seed, ab). The usual CRC-32C of a text is
// ~Crc32c(~0u, text).
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace hyperloop
