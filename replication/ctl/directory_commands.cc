// hyperloopctl adopt, promote and switchover: they become hyperloop-directory, which is linked with
// RocksDB.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/preload.h"

namespace hyperloop::ctl {
namespace {

struct DirectoryOptions {
  std::string db, replica_files;
  Where where;
  uint32_t wait = 600;
  bool force = false, yes = false;
};

// Does not return when it works.
Status Become(const char* verb, const DirectoryOptions& options) {
  HL_ASSIGN_OR_RETURN(const std::string program, FindOwnProgram("hyperloop-directory"));
  HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(options.where));
  const char* const force = !options.force ? "" : options.yes ? "yes" : "ask";
  ::execl(program.c_str(), program.c_str(), verb, options.db.c_str(), uri.c_str(),
          options.replica_files.c_str(), std::to_string(options.wait).c_str(), force,
          static_cast<char*>(nullptr));
  return FromErrno(errno, "executing " + program);
}

// The options of a command that makes a directory of this machine the group's.
std::shared_ptr<DirectoryOptions> AddTarget(CLI::App* command) {
  auto options = std::make_shared<DirectoryOptions>();
  command
      ->add_option("--db", options->db,
                   "an absent or empty directory, or one that an earlier call began")
      ->type_name("DIR")
      ->required();
  AddWhere(command, &options->where, "the group, with the device and the pool of this machine");
  command
      ->add_option("--replica-files", options->replica_files,
                   "the directory of files of a replica on this machine (POOL.files): its "
                   "tables are linked into the database instead of sent")
      ->type_name("DIR");
  return options;
}

}  // namespace

void AddAdopt(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<DirectoryOptions>();
  CLI::App* adopt = app.add_subcommand(
      "adopt",
      "take a closed database, or a restored backup, into a group that holds none; changes no file "
      "of it, and goes on where an earlier call was cut short");
  adopt->add_option("--db", options->db, "the database's directory")->type_name("DIR")->required();
  AddWhere(adopt, &options->where);
  adopt->callback([=] { *chosen = [=] { return Fail(Become("adopt", *options)); }; });
}

void AddPromote(CLI::App& app, Action* chosen) {
  CLI::App* promote = app.add_subcommand(
      "promote",
      "make a directory on this machine the group's database, in place of the former primary's, "
      "which is refused from then on; takes nothing from a primary that lives, unless the URI says "
      "takeover=true; goes on where an earlier call was cut short");
  const auto options = AddTarget(promote);
  CLI::Option* const force = promote->add_flag(
      "--force", options->force,
      "go on with the replicas that answer, though they are no majority, because the others are "
      "lost for good; says what may be lost, and asks. What the others hold is never used again");
  promote->add_flag("--yes", options->yes, "do not ask")->needs(force);
  promote->callback([=] { *chosen = [=] { return Fail(Become("promote", *options)); }; });
}

void AddSwitchover(CLI::App& app, Action* chosen) {
  CLI::App* switchover = app.add_subcommand(
      "switchover",
      "move the database of a primary that lives to this machine: bring what the directory lacks "
      "while the primary serves, say so, wait until the primary has closed its database, and then "
      "do as promote; takes nothing from a primary that has not closed; goes on where an earlier "
      "call was cut short");
  const auto options = AddTarget(switchover);
  switchover
      ->add_option("--wait", options->wait,
                   "how many seconds the primary may take to close its database, once everything "
                   "is here; then the call is refused")
      ->check(CLI::Range(0u, 604800u))
      ->type_name("SECONDS")
      ->capture_default_str();
  switchover->callback([=] { *chosen = [=] { return Fail(Become("switchover", *options)); }; });
}

}  // namespace hyperloop::ctl
