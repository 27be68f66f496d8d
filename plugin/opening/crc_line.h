// The last line of a small text file of the plugin: the checksum of what is above it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "hyperloop/replication/crc32c.h"

namespace hyperloop::plugin {

inline constexpr size_t kCrcLineBytes = 16;

inline std::string WithCrcLine(std::string text) {
  char crc[32];
  std::snprintf(crc, sizeof crc, "crc32c %08x\n", ~Crc32c(~0u, text.data(), text.size()));
  return text + crc;
}

// What is above the last line; nothing if it is not that checksum.
inline std::string_view AboveCrcLine(std::string_view text) {
  if (text.size() < kCrcLineBytes) return {};
  const std::string_view above = text.substr(0, text.size() - kCrcLineBytes);
  return WithCrcLine(std::string(above)) == text ? above : std::string_view();
}

}  // namespace hyperloop::plugin
