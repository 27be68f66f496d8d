// Option values as text: numbers with units, booleans, percent-encoding.
//
// Parsers accept the whole text or nothing (no trailing characters, no overflow, no sign) and
// return no message: the caller knows the option's name and range, and names both.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hyperloop::option_text {

// Decimal digits only.
std::optional<uint64_t> ParseInteger(std::string_view text);
// Decimal digits, then nothing or one of K, M, G (either case, binary: 1K = 1024).
std::optional<uint64_t> ParseBytes(std::string_view text);
// The shortest text that ParseBytes turns into `bytes` again.
std::string FormatBytes(uint64_t bytes);
// Decimal digits, then nothing or "ms" (milliseconds) or "s" (seconds).
std::optional<std::chrono::milliseconds> ParseMilliseconds(std::string_view text);
std::string FormatMilliseconds(std::chrono::milliseconds time);
// true|false|1|0
std::optional<bool> ParseBoolean(std::string_view text);

// "%41" becomes "A"; a '%' without two hexadecimal digits, and "%00", are errors.
std::optional<std::string> PercentDecode(std::string_view text);
// Encodes characters with a meaning in a URI or in a RocksDB option string; keeps ASCII letters,
// digits and "-._~/:,[]@+".
std::string PercentEncode(std::string_view text);

// So many have room in a group's record of its replicas (region/region_layout.h).
inline constexpr size_t kMaxEndpointBytes = 79;
// "host:port" with a host that is not empty and a port from 1 to 65535, of at most
// kMaxEndpointBytes; IPv6 hosts in brackets.
// Returns what is wrong, or an empty text when nothing is.
std::string CheckEndpoint(std::string_view endpoint);

}  // namespace hyperloop::option_text
