// Texts for messages of the control path.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "hyperloop/core/name.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/text.h"
#include "softrnic/commands/commands.h"

namespace hyperloop::softrnic {

// What a peer sent, with a question mark for each byte that is not printable ASCII.
inline std::string Shown(std::string_view text) {
  std::string shown(text);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return shown;
}

// The name in a command. False: it is none.
inline bool ToName(const char (&name)[kNameBytes], std::string* out) {
  out->assign(std::begin(name), std::find(std::begin(name), std::end(name), '\0'));
  return IsName(*out);
}

inline const char* StateName(rnic::QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "ERROR"};
  return kNames[static_cast<int>(state)];
}

}  // namespace hyperloop::softrnic
