#include "common/printable.h"

#include <cstdint>

namespace hyperloop {
namespace {

constexpr std::string_view kCut = "…";

// Length of the UTF-8 sequence at the start of `text` and its code point; 0: there is none.
size_t Decode(std::string_view text, uint32_t* point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    *point = first;
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  *point = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    *point = *point << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = *point >= 0xd800 && *point <= 0xdfff;
  return *point < kLeast[length] || *point > 0x10ffff || surrogate ? 0 : length;
}

bool Shows(uint32_t point) {
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
  // Directions, zero-width marks, line and paragraph separators, byte order marks.
  return !(point >= 0x200b && point <= 0x200f) && !(point >= 0x2028 && point <= 0x202e) &&
         !(point >= 0x2060 && point <= 0x206f) && point != 0xfeff && point != 0x061c;
}

}  // namespace

std::string Printable(std::string_view text, size_t limit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  size_t fits = 0;  // length of `out` that leaves room for the mark of a cut
  while (!text.empty()) {
    uint32_t point = 0;
    const size_t length = Decode(text, &point);
    if (length != 0 && Shows(point)) {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    } else {
      const auto byte = static_cast<unsigned char>(text.front());
      out.append({'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]});
      text.remove_prefix(1);
    }
    if (out.size() + kCut.size() <= limit) fits = out.size();
    if (out.size() > limit) return out.substr(0, fits).append(kCut);
  }
  return out;
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    uint32_t point = 0;
    const size_t length = Decode(text, &point);
    if (length == 0 || !Shows(point)) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace hyperloop
