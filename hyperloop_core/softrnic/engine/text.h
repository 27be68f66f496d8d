// Messages of the control path.
#pragma once

#include <sstream>
#include <string>

namespace hyperloop::softrnic {

template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace hyperloop::softrnic
