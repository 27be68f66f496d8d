#include "options/option_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace hyperloop::option_text {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Digits times `unit`; nothing when it does not fit.
std::optional<uint64_t> ParseScaled(std::string_view digits, uint64_t unit) {
  std::optional<uint64_t> number = ParseInteger(digits);
  if (!number || *number > std::numeric_limits<uint64_t>::max() / unit) return std::nullopt;
  return *number * unit;
}

}  // namespace

std::optional<uint64_t> ParseInteger(std::string_view text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), IsDigit)) return std::nullopt;
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  if (text.empty()) return std::nullopt;
  uint64_t unit = 1;
  switch (text.back()) {
    case 'K':
    case 'k':
      unit = uint64_t{1} << 10;
      break;
    case 'M':
    case 'm':
      unit = uint64_t{1} << 20;
      break;
    case 'G':
    case 'g':
      unit = uint64_t{1} << 30;
      break;
    default:
      break;
  }
  if (unit != 1) text.remove_suffix(1);
  return ParseScaled(text, unit);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes == 0) return "0";
  if (bytes % (uint64_t{1} << 30) == 0) return std::to_string(bytes >> 30) + "G";
  if (bytes % (uint64_t{1} << 20) == 0) return std::to_string(bytes >> 20) + "M";
  if (bytes % (uint64_t{1} << 10) == 0) return std::to_string(bytes >> 10) + "K";
  return std::to_string(bytes);
}

std::optional<std::chrono::milliseconds> ParseMilliseconds(std::string_view text) {
  uint64_t unit = 1;
  if (text.ends_with("ms")) {
    text.remove_suffix(2);
  } else if (text.ends_with("s")) {
    text.remove_suffix(1);
    unit = 1000;
  }
  std::optional<uint64_t> value = ParseScaled(text, unit);
  if (!value || *value > static_cast<uint64_t>(std::chrono::milliseconds::max().count())) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(static_cast<int64_t>(*value));
}

std::string FormatMilliseconds(std::chrono::milliseconds time) {
  if (time.count() != 0 && time.count() % 1000 == 0)
    return std::to_string(time.count() / 1000) + "s";
  return std::to_string(time.count()) + "ms";
}

std::optional<bool> ParseBoolean(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    int high = HexDigit(text[i + 1]);
    int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    decoded.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return decoded;
}

std::string PercentEncode(std::string_view text) {
  constexpr std::string_view kKept = "-._~/:,[]@+";
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (char c : text) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter || IsDigit(c) || kKept.find(c) != std::string_view::npos) {
      encoded.push_back(c);
      continue;
    }
    auto byte = static_cast<unsigned char>(c);
    encoded.push_back('%');
    encoded.push_back(kHex[byte >> 4]);
    encoded.push_back(kHex[byte & 15]);
  }
  return encoded;
}

std::string CheckEndpoint(std::string_view endpoint) {
  size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos) return "has no \":port\"";
  std::string_view host = endpoint.substr(0, colon);
  if (host.empty()) return "has no host before \":port\"";
  bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":[]") != std::string_view::npos) {
    return "has an IPv6 host that is not in brackets";
  }
  std::optional<uint64_t> port = ParseInteger(endpoint.substr(colon + 1));
  if (!port || *port < 1 || *port > 65535) return "has a port that is not a number from 1 to 65535";
  for (char c : endpoint) {
    if (static_cast<unsigned char>(c) <= ' ') return "has a space or control character";
  }
  if (endpoint.size() > kMaxEndpointBytes) {
    return "has " + std::to_string(endpoint.size()) + " bytes, more than the " +
           std::to_string(kMaxEndpointBytes) +
           " that a group's record of its replicas has room for; use a shorter name or the address";
  }
  return "";
}

}  // namespace hyperloop::option_text
