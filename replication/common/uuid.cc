#include "common/uuid.h"

namespace hyperloop {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool DashBefore(size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

}  // namespace

std::string FormatUuid(const Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (DashBefore(i)) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15];
  }
  return text;
}

Result<Uuid> ParseUuid(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("\"" + std::string(text) +
                           "\" is not a uuid: expected xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
  };
  if (text.size() != 36) return bad();
  Uuid uuid;
  size_t at = 0;
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (DashBefore(i) && text[at++] != '-') return bad();
    const int high = HexDigit(text[at]), low = HexDigit(text[at + 1]);
    if (high < 0 || low < 0) return bad();
    uuid[i] = static_cast<uint8_t>(high << 4 | low);
    at += 2;
  }
  return uuid;
}

}  // namespace hyperloop
