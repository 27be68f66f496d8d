// The names of hosts and of services. A host has the same name in its keys, in lists of peers and
// at its RNIC.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>

namespace hyperloop {

// A name in a message of fixed layout, filled up with zeros, of which there is at least one.
inline constexpr size_t kNameBytes = 64;

inline constexpr char kNameRule[] = "1 to 63 of [A-Za-z0-9._-]";
inline bool IsName(std::string_view name) {
  return !name.empty() && name.size() < kNameBytes &&
         std::all_of(name.begin(), name.end(), [](unsigned char ch) {
           return (ch < 0x80 && std::isalnum(ch) != 0) || ch == '.' || ch == '_' || ch == '-';
         });
}

}  // namespace hyperloop
