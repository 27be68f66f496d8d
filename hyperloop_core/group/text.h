// Concat: error texts from parts. Off the hot path only.
#pragma once

#include <sstream>
#include <string>

namespace hyperloop {

template <class... Parts>
std::string Concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace hyperloop
