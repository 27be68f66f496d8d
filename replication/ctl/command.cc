#include "ctl/command.h"

#include <array>
#include <cstdio>

namespace hyperloop::ctl {

int Fail(const Status& status) {
  std::fprintf(stderr, "hyperloopctl: %s\n", status.message().c_str());
  return status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailure;
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
