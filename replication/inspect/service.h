// The private data of service "inspect", which a replica publishes at its device for tools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "hyperloop/core/status.h"

namespace hyperloop {

inline constexpr std::string_view kInspectService = "inspect";

struct InspectInfo {
  uint32_t magic;
  uint32_t version;
  uint64_t region_addr;
  uint64_t region_size;
  uint64_t page_addr;
  uint64_t page_size;
  uint32_t region_rkey;
  uint32_t page_rkey;
  uint32_t media;  // EncodeMedia
  uint32_t zero;
};
static_assert(sizeof(InspectInfo) == 56 && std::is_trivially_copyable_v<InspectInfo>);
inline constexpr uint32_t kInspectMagic = 0x4e494c48;  // "HLIN"
inline constexpr uint32_t kInspectVersion = 1;

// Parses what `host` published. kNotSupported: another version. kCorruption: another length, magic
// number or page size, or an impossible region size or medium.
Result<InspectInfo> ParseInspectInfo(std::span<const std::byte> data, std::string_view host);

}  // namespace hyperloop
