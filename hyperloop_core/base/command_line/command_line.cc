#include "hyperloop/command_line/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyperloop/core/log_level.h"
#include "hyperloop/core/nearest_name.h"

namespace hyperloop {
namespace {

using Json = nlohmann::ordered_json;

// Those that exist, whichever of them the command line names.
std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

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
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) options.push_back(Describe(*option));  // hidden: in none
  for (const CLI::App* command : Commands(app)) commands.push_back(Describe(*command));
  return {{"name", app.get_name()},
          {"text", app.get_description()},
          {"footer", app.get_footer()},
          {"options", options},
          {"commands", commands}};
}

// The names of a command's options, and of those in its groups, which are commands without a name.
void AddOptionNames(const CLI::App& command, std::vector<std::string>* names) {
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names->push_back("--" + name);
  for (const CLI::App* group : Commands(command))
    if (group->get_name().empty()) AddOptionNames(*group, names);
}

std::string MeantOf(const std::string& word, const std::vector<std::string>& names) {
  return DidYouMean(word, std::vector<std::string_view>(names.begin(), names.end()));
}

std::string MeantOption(const std::string& word, const CLI::App& command) {
  std::vector<std::string> names;
  AddOptionNames(command, &names);
  return MeantOf(word, names);
}

std::string MeantCommand(const std::string& word, const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* each : Commands(command)) {
    names.push_back(each->get_name());
    for (const CLI::App* inner : Commands(*each)) {
      if (!inner->get_name().empty() && inner->get_name() == word)
        return "; did you mean " + each->get_name() + " " + word + "?";
    }
  }
  return MeantOf(word, names);
}

// What is wrong with the first word that the command does not know; empty: it knows all. The words
// after "--" are not the command's.
std::string UnknownWord(const CLI::App& command) {
  const std::vector<std::string> words = command.remaining();
  if (words.empty() || words.front() == "--") return "";
  if (words.front().starts_with('-')) {
    const std::string name = words.front().substr(0, words.front().find('='));
    return "no option " + name + MeantOption(name, command);
  }
  const std::vector<const CLI::App*> commands = Commands(command);
  const bool has_commands = std::any_of(commands.begin(), commands.end(), [](const CLI::App* each) {
    return !each->get_name().empty();
  });
  if (!has_commands) return "unexpected word '" + words.front() + "'";
  return "no command " + words.front() + MeantCommand(words.front(), command);
}

// The words that CLI11 puts before an unknown name in a file of options.
constexpr std::string_view kUnknownInFile = "INI was not able to parse ";

std::string UnknownInFile(const CLI::App& app, const std::string& error) {
  if (app.get_config_ptr() == nullptr || !error.starts_with(kUnknownInFile)) return "";
  const std::string name = error.substr(kUnknownInFile.size());
  std::vector<std::string> names;
  AddOptionNames(app, &names);
  for (std::string& each : names) each.erase(0, 2);
  return app.get_config_ptr()->as<std::string>() + ": no option " + name + MeantOf(name, names);
}

// Says on standard error what is wrong, in which command, and where help is. A word that is not
// known is the likelier mistake if something is missing, too.
void Explain(const CLI::App& app, const CLI::ParseError& error) {
  std::string wrong = UnknownInFile(app, error.what());
  std::string words = app.get_name();
  for (const CLI::App* command = &app; command != nullptr;) {
    if (wrong.empty()) wrong = UnknownWord(*command);
    const CLI::App* inner = nullptr;
    for (const CLI::App* named : command->get_subcommands())
      if (!named->get_name().empty()) inner = named;
    if (inner != nullptr) words += " " + inner->get_name();
    command = inner;
  }
  if (wrong.empty()) wrong = error.what();
  std::fprintf(stderr, "%s: %s\nSee %s --help.\n", words.c_str(), wrong.c_str(), words.c_str());
}

}  // namespace

void AddHelpJson(CLI::App& app) {
  app.add_flag_callback(
         "--help-json",
         [&app] {
           using Handler = nlohmann::ordered_json::error_handler_t;
           throw CLI::CallForVersion(Describe(app).dump(1, ' ', false, Handler::replace), 0);
         },
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

CLI::Validator Processor(std::vector<std::string> words) {
  const auto check = [words = std::move(words)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    const long last = ::sysconf(_SC_NPROCESSORS_CONF) - 1;
    long number = -1;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && stop == end && number >= 0 && number <= last) return "";
    std::string others;
    for (const std::string& word : words) others += ", " + word;
    return "'" + text + "' is no processor of this machine: 0 to " + std::to_string(last) + others;
  };
  return CLI::Validator(check, "");
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv,
                                    const std::function<void()>& check) {
  try {
    app.parse(argc, argv);
    if (check) check();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    Explain(app, error);
    return 2;
  }
  return std::nullopt;
}

}  // namespace hyperloop
