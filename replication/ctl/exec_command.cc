// hyperloopctl exec --uri URI -- PROGRAM ARGUMENT…
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>

#include "ctl/command.h"
#include "ctl/preload.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::ctl {
namespace {

struct ExecOptions {
  std::string uri;
  bool no_flag = false;
  std::vector<std::string> command;
};

// Does not return when it works.
Status Exec(const ExecOptions& options) {
  if (!options.uri.empty()) {
    StoreOptions store;
    HL_RETURN_IF_ERROR(ParseStoreUri(options.uri, &store).WithContext("--uri"));
    HL_RETURN_IF_ERROR(ValidateStoreOptions(store).WithContext("--uri"));
  }
  HL_ASSIGN_OR_RETURN(const std::string plugin, FindPlugin());
  HL_ASSIGN_OR_RETURN(const std::string program, FindProgram(options.command.at(0)));
  HL_RETURN_IF_ERROR(CheckPreload(program, plugin));
  const char* others = std::getenv("LD_PRELOAD");
  const std::string preload =
      others == nullptr || *others == 0 ? plugin : plugin + ":" + std::string(others);
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  const std::vector<std::string> line =
      CommandLine(options.command, options.uri, !options.no_flag && !options.uri.empty());
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
  exec->add_option("--uri", options->uri,
                   "the group; passed to PROGRAM as --fs_uri=URI unless it has such an argument")
      ->type_name("URI");
  exec->add_flag("--no-flag", options->no_flag,
                 "do not pass --fs_uri; the program gets the URI in another way");
  exec->add_option("command", options->command, "-- PROGRAM and its arguments")->required();
  exec->positionals_at_end();
  exec->prefix_command(false);
  exec->callback([=] {
    *chosen = [=] {
      if (options->uri.empty() && !options->no_flag) {
        return Fail(InvalidArgument("exec needs --uri URI, or --no-flag"));
      }
      return Fail(Exec(*options));
    };
  });
}

}  // namespace hyperloop::ctl
