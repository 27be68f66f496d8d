// hyperloopctl options
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "ctl/command.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::ctl {
namespace {

// Breaks text at spaces so that no line is longer than `width`.
std::vector<std::string> Wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = text.size();
    if (end > width) {
      end = text.rfind(' ', width);
      if (end == std::string_view::npos || end == 0) end = width;
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end < text.size() ? end + 1 : end);
  }
  return lines;
}

int PrintOptions() {
  std::printf(
      "Options of a URI (hyperloop://HOST:PORT,HOST:PORT?name=value&name=value) and of an option "
      "string.\n");
  for (const OptionInfo& option : StoreOptionTable()) {
    const std::string shown(option.default_value.empty() ? "none" : option.default_value);
    std::printf("\n%s  (%s; default: %s)\n", std::string(option.name).c_str(),
                std::string(option.type).c_str(), shown.c_str());
    for (const std::string& line : Wrap(option.text, 90)) std::printf("    %s\n", line.c_str());
  }
  return kExitOk;
}

}  // namespace

void AddOptions(CLI::App& app, Action* chosen) {
  app.add_subcommand("options", "explain every option of a URI")->callback([=] {
    *chosen = [] { return PrintOptions(); };
  });
}

}  // namespace hyperloop::ctl
