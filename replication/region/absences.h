// Since when, and why, a group goes on without some of its replicas: for people only. A replica
// keeps it beside the configuration, so that whoever looks, and the next primary, can read it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace hyperloop {

// By the replica's address: "since 2026-11-20T18:26:34Z: why".
using Absences = std::map<std::string, std::string>;

inline constexpr size_t kMaxAbsences = 1023;  // bytes of the text

// One text of them all; what is too long is cut.
std::string FormatAbsences(const Absences& absences);
// What is not of that form is left out.
Absences ParseAbsences(std::string_view text);

}  // namespace hyperloop
