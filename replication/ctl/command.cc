#include "ctl/command.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace hyperloop::ctl {

int Fail(const Status& status) {
  std::fprintf(stderr, "hyperloopctl: %s\n", status.message().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailure;
}

Result<uint64_t> ParseSize(const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  unsigned shift = 0;
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix == "K" || suffix == "k") {
    shift = 10;
  } else if (suffix == "M" || suffix == "m") {
    shift = 20;
  } else if (suffix == "G" || suffix == "g") {
    shift = 30;
  } else if (!suffix.empty()) {
    shift = 64;
  }
  if (error != std::errc() || shift == 64 || (value << shift) >> shift != value) {
    return InvalidArgument("'" + text + "' is no size: give bytes, or a number with K, M or G");
  }
  return value << shift;
}

std::string FormatSize(uint64_t bytes) {
  static constexpr std::array<const char*, 4> kUnits{" B", " KiB", " MiB", " GiB"};
  size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace hyperloop::ctl
