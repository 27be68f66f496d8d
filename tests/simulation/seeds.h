// The seeds that a user names.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::simulation {

struct SeedRange {
  uint64_t first = 0, last = 0;  // both belong to it
};

// Of "1-200,243,895": numbers, and ranges A-B, each above the one before, so that no seed is named
// twice. kInvalidArgument: it is something else; the text says where.
Result<std::vector<SeedRange>> ParseSeeds(std::string_view text);

}  // namespace hyperloop::simulation
