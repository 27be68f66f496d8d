// Texts for messages of the control path.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "common/concat.h"
#include "hyperloop/core/rnic.h"
#include "softrnic/commands.h"

namespace hyperloop::softrnic {

// What a peer sent, with a question mark for each byte that is not printable ASCII.
inline std::string Shown(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

// Whether a host or a service may have this name.
inline bool IsName(std::string_view name) {
  return !name.empty() && name.size() < kMaxName &&
         std::all_of(name.begin(), name.end(), [](unsigned char ch) {
           return std::isalnum(ch) != 0 || ch == '.' || ch == '_' || ch == '-';
         });
}
inline constexpr char kNameRule[] = "1 to 63 of [A-Za-z0-9._-]";
static_assert(kMaxName == 64);

inline const char* StateName(rnic::QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "ERROR"};
  return kNames[static_cast<int>(state)];
}

}  // namespace hyperloop::softrnic
