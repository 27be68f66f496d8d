// Concat: a text from parts, for errors and logs. It allocates: not for hot paths.
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
