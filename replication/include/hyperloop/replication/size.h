// Sizes in bytes as users write them.
#pragma once

#include <cstdint>
#include <string>

#include "hyperloop/core/status.h"

namespace hyperloop {

// "256M" → bytes; suffixes K, M, G (either case, binary). kInvalidArgument: it is no size.
Result<uint64_t> ParseSize(const std::string& text);

}  // namespace hyperloop
