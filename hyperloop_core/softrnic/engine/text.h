// Texts for messages of the control path.
#pragma once

#include <sstream>
#include <string>

#include "hyperloop/core/rnic.h"

namespace hyperloop::softrnic {

template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

inline const char* StateName(rnic::QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "ERROR"};
  return kNames[static_cast<int>(state)];
}

}  // namespace hyperloop::softrnic
