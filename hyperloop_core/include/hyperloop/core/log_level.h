// The levels of a log, as users name them.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "hyperloop/core/log.h"

namespace hyperloop {

// In the order of LogLevel.
inline constexpr std::array<std::string_view, 4> kLogLevelNames = {"debug", "info", "warn",
                                                                   "error"};

// The level of that name, which is one of these.
inline LogLevel LogLevelOf(std::string_view name) {
  const auto found = std::find(kLogLevelNames.begin(), kLogLevelNames.end(), name);
  return found == kLogLevelNames.end() ? LogLevel::kInfo
                                       : static_cast<LogLevel>(found - kLogLevelNames.begin());
}

}  // namespace hyperloop
