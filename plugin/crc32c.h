// CRC-32C, computed bit by bit, for small texts and single records.
#pragma once

#include <cstdint>
#include <string_view>

namespace hyperloop::plugin {

inline uint32_t Crc32c(std::string_view text) {
  uint32_t crc = ~0u;
  for (char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

}  // namespace hyperloop::plugin
