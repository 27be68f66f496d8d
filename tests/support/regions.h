// Compares regions of members that are at rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "hyperloop/core/group.h"

namespace hyperloop::test {

// The first offset at which the regions differ in one of the ranges. Nothing: they do not.
inline std::optional<uint64_t> FirstDifference(std::span<const std::byte> a,
                                               std::span<const std::byte> b,
                                               std::span<const Range> ranges) {
  if (a.size() != b.size()) return std::min(a.size(), b.size());
  for (const Range& range : ranges) {
    const auto of_a = a.subspan(range.offset, range.size);
    const auto found = std::ranges::mismatch(of_a, b.subspan(range.offset, range.size)).in1;
    if (found != of_a.end()) return range.offset + static_cast<uint64_t>(found - of_a.begin());
  }
  return std::nullopt;
}

}  // namespace hyperloop::test
