// hyperloopctl adopt --db DIR --uri URI: becomes hyperloop-adopt, which is linked with RocksDB.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>

#include "ctl/command.h"
#include "ctl/preload.h"

namespace hyperloop::ctl {
namespace {

struct AdoptOptions {
  std::string db, uri;
};

// Does not return when it works.
Status Adopt(const AdoptOptions& options) {
  HL_ASSIGN_OR_RETURN(const std::string program, FindOwnProgram("hyperloop-adopt"));
  ::execl(program.c_str(), "hyperloopctl adopt", options.db.c_str(), options.uri.c_str(),
          static_cast<char*>(nullptr));
  return FromErrno(errno, "executing " + program);
}

}  // namespace

void AddAdopt(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<AdoptOptions>();
  CLI::App* adopt = app.add_subcommand(
      "adopt",
      "take a closed database, or a restored backup, into a group that holds none; changes no file "
      "of it, and goes on where an earlier call was cut short");
  adopt->add_option("--db", options->db, "the database's directory")->required();
  adopt->add_option("--uri", options->uri, "the group")->required();
  adopt->callback([=] { *chosen = [=] { return Fail(Adopt(*options)); }; });
}

}  // namespace hyperloop::ctl
