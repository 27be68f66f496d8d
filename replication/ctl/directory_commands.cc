// hyperloopctl adopt and promote: they become hyperloop-directory, which is linked with RocksDB.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>

#include "ctl/command.h"
#include "ctl/preload.h"

namespace hyperloop::ctl {
namespace {

struct DirectoryOptions {
  std::string db, uri, replica_files;
};

// Does not return when it works.
Status Become(const char* verb, const DirectoryOptions& options) {
  HL_ASSIGN_OR_RETURN(const std::string program, FindOwnProgram("hyperloop-directory"));
  ::execl(program.c_str(), program.c_str(), verb, options.db.c_str(), options.uri.c_str(),
          options.replica_files.c_str(), static_cast<char*>(nullptr));
  return FromErrno(errno, "executing " + program);
}

}  // namespace

void AddAdopt(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<DirectoryOptions>();
  CLI::App* adopt = app.add_subcommand(
      "adopt",
      "take a closed database, or a restored backup, into a group that holds none; changes no file "
      "of it, and goes on where an earlier call was cut short");
  adopt->add_option("--db", options->db, "the database's directory")->required();
  adopt->add_option("--uri", options->uri, "the group")->required();
  adopt->callback([=] { *chosen = [=] { return Fail(Become("adopt", *options)); }; });
}

void AddPromote(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<DirectoryOptions>();
  CLI::App* promote = app.add_subcommand(
      "promote",
      "make a directory on this machine the group's database, in place of the former primary's, "
      "which is refused from then on; takes nothing from a primary that lives, unless the URI says "
      "takeover=true; goes on where an earlier call was cut short");
  promote
      ->add_option("--db", options->db,
                   "an absent or empty directory, or one that an earlier call began")
      ->required();
  promote
      ->add_option("--uri", options->uri, "the group, with the device and the pool of this machine")
      ->required();
  promote->add_option("--replica-files", options->replica_files,
                      "the directory of files of a replica on this machine (POOL.files): its "
                      "tables are linked into the database instead of sent");
  promote->callback([=] { *chosen = [=] { return Fail(Become("promote", *options)); }; });
}

}  // namespace hyperloop::ctl
