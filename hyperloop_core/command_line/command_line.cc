#include "hyperloop/command_line/command_line.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hyperloop/core/log_level.h"

namespace hyperloop {
namespace {

using Json = nlohmann::ordered_json;

Json Describe(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const bool flag = option.get_items_expected_max() == 0;
  return {{"names", names},
          {"positional", option.get_positional() ? option.get_name(true) : ""},
          {"value", flag ? "" : option.get_type_name()},
          {"default", option.get_default_str()},
          {"required", option.get_required()},
          {"many", option.get_items_expected_max() > 1},
          {"configurable", option.get_configurable()},
          {"group", option.get_group()},
          {"text", option.get_description()}};
}

Json Describe(const CLI::App& app) {
  Json options = Json::array(), commands = Json::array();
  for (const CLI::Option* option : app.get_options()) options.push_back(Describe(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(Describe(*command));
  return {{"name", app.get_name()},
          {"text", app.get_description()},
          {"footer", app.get_footer()},
          {"options", options},
          {"commands", commands}};
}

}  // namespace

void AddHelpJson(CLI::App& app) {
  app.add_flag_callback(
         "--help-json", [&app] { throw CLI::CallForVersion(Describe(app).dump(1), 0); },
         "Print this help message as JSON and exit")
      ->configurable(false);
}

void AddConfig(CLI::App& app) {
  app.set_config("--config", "",
                 "a file of these options, NAME=VALUE on each line, without dashes; the command "
                 "line counts more. # begins a comment")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

void AddLogLevel(CLI::App& app, std::string* level) {
  app.add_option("--log-level", *level,
                 "least level of what is logged to standard error: debug, info, warn or error")
      ->check(CLI::IsMember(std::vector<std::string>(kLogLevelNames.begin(), kLogLevelNames.end())))
      ->capture_default_str();
}

void AddMetrics(CLI::App& app, metrics::ServerOptions* options) {
  CLI::Option* const metrics =
      app.add_option("--metrics", options->address,
                     "show metrics for Prometheus by HTTP at this numeric loopback address, under "
                     "/metrics; port 0: a free one, which the log names. Without it no port is "
                     "open")
          ->type_name("ADDRESS:PORT");
  app.add_flag("--metrics-open", options->open,
               "--metrics may be an address that other machines reach: whoever reaches it reads "
               "the names of hosts and groups, and how they are, without proving who he is")
      ->needs(metrics);
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv,
                                    const std::function<void()>& check) {
  try {
    app.parse(argc, argv);
    if (check) check();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace hyperloop
