// hyperloopctl exec --uri URI -- PROGRAM ARGUMENT…; --dir DIR or --bind DIR=URI instead of --uri.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/preload.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/bindings.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::ctl {
namespace {

struct ExecOptions {
  Where where;
  std::vector<std::string> bind;
  bool no_flag = false;
  std::vector<std::string> command;
};

// DIR=URI with an absolute DIR. What leads up from this process's directory is known, because the
// kernel names that one without links.
Result<std::string> WithAbsoluteDirectory(const std::string& pair) {
  if (pair.starts_with('/')) return pair;
  std::error_code error;
  std::filesystem::path at = std::filesystem::current_path(error);
  if (error) return FromErrno(error.value(), "--bind " + pair + ": the current directory");
  std::string_view rest = pair;
  for (;;) {
    if (rest.starts_with("../") || rest.starts_with("..=")) {
      at = at.parent_path();
      rest.remove_prefix(rest[2] == '/' ? 3 : 2);
    } else if (rest.starts_with("./")) {
      rest.remove_prefix(2);
    } else {
      return Text(at.string(), "/", rest);
    }
  }
}

// Puts DIR=URI before what is bound already. DIR may be relative to this process's directory.
Status AddToBindVariable(const std::vector<std::string>& pairs) {
  std::string text;
  for (const std::string& pair : pairs) {
    HL_ASSIGN_OR_RETURN(const std::string absolute, WithAbsoluteDirectory(pair));
    if (absolute.find(';') != std::string::npos)
      return InvalidArgument("--bind " + absolute + ": it cannot have a semicolon");
    text += (text.empty() ? "" : ";") + absolute;
  }
  if (const char* before = std::getenv(kBindVariable); before != nullptr && *before != 0)
    text += ";" + std::string(before);
  Bindings bindings;
  AddBindings(text, &bindings);
  HL_RETURN_IF_ERROR(bindings.status.WithContext("--bind"));
  for (const DirectoryBinding& binding : bindings.list)
    HL_RETURN_IF_ERROR(binding.status.WithContext("--bind " + binding.directory));
  ::setenv(kBindVariable, text.c_str(), 1);
  return Status::Ok();
}

// Does not return when it works.
Status Exec(const ExecOptions& options) {
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(options.where));
  if (!uri.empty()) {
    StoreOptions store;
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &store).WithContext("--uri"));
    HL_RETURN_IF_ERROR(ValidateStoreOptions(store).WithContext("--uri"));
  }
  HL_ASSIGN_OR_RETURN(const std::string plugin, FindPlugin());
  HL_ASSIGN_OR_RETURN(const std::string program, FindProgram(options.command.at(0)));
  const bool bound = !options.bind.empty();
  HL_RETURN_IF_ERROR(
      CheckPreload(program, plugin, bound ? Preloaded::kOrItsStarter : Preloaded::kRocksDbProgram));
  if (bound) HL_RETURN_IF_ERROR(AddToBindVariable(options.bind));
  const char* others = std::getenv("LD_PRELOAD");
  const std::string preload =
      others == nullptr || *others == 0 ? plugin : plugin + ":" + std::string(others);
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  const std::vector<std::string> line =
      CommandLine(options.command, uri, !options.no_flag && !uri.empty());
  std::vector<char*> argv;
  for (const std::string& word : line) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return FromErrno(errno, "executing " + program);
}

}  // namespace

void AddExec(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<ExecOptions>();
  CLI::App* exec = app.add_subcommand(
      "exec", "run a stock RocksDB program (db_bench, ldb, a service) with the plugin preloaded");
  CLI::Option_group* where =
      AddWhere(exec, &options->where,
               "the group; passed to PROGRAM as --fs_uri=URI unless it has such an argument");
  where->require_option(0, 1);
  exec->add_option("--bind", options->bind,
                   "DIR=URI: the directory and what is below it belong to the group; for programs "
                   "that have no option for a file system, and for those that start them (nice, "
                   "timeout, scripts); adds no argument; may be repeated")
      ->type_name("DIR=URI")
      ->allow_extra_args(false)
      ->excludes(where->get_option("--uri"))
      ->excludes(where->get_option("--dir"));
  exec->add_flag("--no-flag", options->no_flag,
                 "do not pass --fs_uri; the program gets the URI in another way");
  exec->add_option("command", options->command, "-- PROGRAM and its arguments")->required();
  exec->positionals_at_end();
  exec->prefix_command(false);
  exec->callback([=] {
    *chosen = [=] {
      const bool has_group = !options->where.uri.empty() || !options->where.directory.empty();
      if (!has_group && options->bind.empty() && !options->no_flag) {
        return Fail(
            InvalidArgument("exec needs --uri URI, --dir DIR, --bind DIR=URI, or --no-flag"));
      }
      return Fail(Exec(*options));
    };
  });
}

}  // namespace hyperloop::ctl
