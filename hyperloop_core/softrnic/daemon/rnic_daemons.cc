#include "hyperloop/core/rnic_daemons.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace hyperloop {
namespace {

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// The processor of the process's first thread, which is a daemon's data thread, if there is one
// only. A process that has ended has none, although its parent may not have heard of it yet.
std::optional<int> OnlyProcessor(const std::filesystem::path& process) {
  constexpr std::string_view kEnded = "State:\tZ", kProcessors = "Cpus_allowed_list:\t";
  std::ifstream status(process / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kEnded)) return std::nullopt;
    if (line.starts_with(kProcessors))
      return WholeNumber(std::string_view(line).substr(kProcessors.size()));
  }
  return std::nullopt;
}

}  // namespace

std::vector<PinnedDaemon> PinnedDaemons() {
  std::vector<PinnedDaemon> daemons;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::optional<int> pid = WholeNumber(entry->path().filename().native());
    if (!pid) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    if (name != "hyperloop-rnicd") continue;
    if (const std::optional<int> cpu = OnlyProcessor(entry->path()))
      daemons.push_back({*pid, *cpu});
  }
  std::sort(daemons.begin(), daemons.end(),
            [](const PinnedDaemon& a, const PinnedDaemon& b) { return a.pid < b.pid; });
  return daemons;
}

}  // namespace hyperloop
