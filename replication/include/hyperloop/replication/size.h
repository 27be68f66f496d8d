// Sizes in bytes as users write them.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop {

// What programs let users ask for as the size of a region, in bytes: room for a small database, and
// the largest allocation that a PMDK pool holds.
inline constexpr uint64_t kMinRegionSize = 4ull << 20;
inline constexpr uint64_t kMaxRegionSize = 15ull << 30;

// "256M" → bytes; suffixes K, M, G (either case, binary). kInvalidArgument: it is no size.
Result<uint64_t> ParseSize(const std::string& text);

}  // namespace hyperloop
