// hyperloopctl adopt, promote, standby and switchover: they become hyperloop-directory.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "ctl/command.h"
#include "ctl/directory_program.h"
#include "ctl/nodes.h"

namespace hyperloop::ctl {
namespace {

struct DirectoryOptions {
  std::string db, replica_files;
  Where where;
  uint32_t wait = 600;
  bool force = false, yes = false;

  Status Adopt() const { return BecomeDirectoryProgram(DirectoryCall::Adopt{}, db, where); }
  Status Promote() const {
    using Lost = DirectoryCall::Promote::Lost;
    const Lost lost = !force ? Lost::kRefuse : yes ? Lost::kGiveUp : Lost::kAsk;
    return BecomeDirectoryProgram(DirectoryCall::Promote{replica_files, lost}, db, where);
  }
  Status Standby() const {
    return BecomeDirectoryProgram(DirectoryCall::Standby{replica_files}, db, where);
  }
  Status Switchover() const {
    const DirectoryCall::Switchover what{replica_files, std::chrono::seconds(wait)};
    return BecomeDirectoryProgram(what, db, where);
  }
};

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
  adopt->callback([=] { *chosen = [=] { return Fail(options->Adopt()); }; });
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
  promote->callback([=] { *chosen = [=] { return Fail(options->Promote()); }; });
}

void AddStandby(CLI::App& app, Action* chosen) {
  CLI::App* standby = app.add_subcommand(
      "standby",
      "keep a directory on this machine ready while another one is the group's: make the pool, and "
      "bring tables, blob files and logs as the primary writes them, until SIGTERM. A promote, a "
      "switchover, or an opening with restore=true, then only links them. Takes nothing");
  const auto options = AddTarget(standby);
  standby->callback([=] { *chosen = [=] { return Fail(options->Standby()); }; });
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
      ->check(CLI::Range(0u, static_cast<uint32_t>(kMostSwitchoverWait.count())))
      ->type_name("SECONDS")
      ->capture_default_str();
  switchover->callback([=] { *chosen = [=] { return Fail(options->Switchover()); }; });
}

}  // namespace hyperloop::ctl
