// Text: joins words and numbers into one message for a person. It allocates: not for hot paths.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace hyperloop {

inline void AppendText(std::string* out, std::string_view piece) { out->append(piece); }
template <std::integral Number>
requires(!std::same_as<Number, char>) void AppendText(std::string* out, Number number) {
  out->append(std::to_string(number));
}

// Text("region of ", 4096, " B") == "region of 4096 B"
template <class... Pieces>
std::string Text(const Pieces&... pieces) {
  std::string out;
  (AppendText(&out, pieces), ...);
  return out;
}

}  // namespace hyperloop
