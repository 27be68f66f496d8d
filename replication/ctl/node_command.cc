// hyperloopctl node
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "ctl/command.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::ctl {
namespace {

namespace fs = std::filesystem;

struct NodeArguments {
  std::string folder = identity::NodeFolder();
  std::string name, address;
};

// Makes the identity unless there is one of this name, and has `trusted` point to the hosts.
Result<identity::HostLine> InitNode(const NodeArguments& arguments) {
  // `trusted` is read by programs with other working directories.
  fs::path folder = fs::absolute(arguments.folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string keys = identity::KeysFolderIn(folder);
  HL_RETURN_IF_ERROR(identity::CheckHostAddress(arguments.address).WithContext("--address"));
  const Status made = identity::MakeIdentity(keys, arguments.name);
  if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
  HL_ASSIGN_OR_RETURN(const auto ring, identity::KeyRing::Load(keys));
  if (ring->name() != arguments.name)
    return AlreadyExists(Text("this host is ", ring->name(), " already, by ", keys,
                              ": call it so, or give another --folder"));
  HL_RETURN_IF_ERROR(identity::TrustHosts(keys, identity::HostsFileIn(folder)));
  return identity::HostLine{ring->name(), arguments.address, ring->public_key()};
}

int RunInit(const NodeArguments& arguments) {
  const auto line = InitNode(arguments);
  if (!line.ok()) return Fail(line.status());
  std::printf("%s\n", line->Line().c_str());
  return kExitOk;
}

}  // namespace

void AddNode(CLI::App& app, Action* chosen) {
  const auto arguments = std::make_shared<NodeArguments>();
  CLI::App* const node = app.add_subcommand(
      "node", "make this machine one of several hosts that all have the same file of hosts");
  node->require_subcommand(1);
  node->footer(
      "The lines that all hosts print are /etc/hyperloop/hosts, the same file on each of them. A "
      "daemon with\n--node /etc/hyperloop, and whatever uses the keys, takes peers and trust from "
      "it, and reads it again when\nit has changed. /etc/hyperloop/groups/NAME.conf, the same "
      "everywhere too, names the hosts of a group\n(hosts = a, b, c): they may be its replicas and "
      "its primary. Its URI is hyperloop:///NAME on each of them;\nhyperloop-replica --group NAME "
      "and "
      "hyperloop-agent --group NAME are all that runs there.");
  CLI::App* const init = node->add_subcommand(
      "init",
      "make this host's identity, unless it has one, and print its line for the file of hosts");
  init->add_option("--name", arguments->name,
                   "this host's name: 1 to 63 of [A-Za-z0-9._-]; it never changes")
      ->required()
      ->type_name("NAME");
  init->add_option("--address", arguments->address,
                   "the numeric address at which the other hosts reach this one")
      ->required()
      ->type_name("ADDRESS");
  init->add_option("--folder", arguments->folder,
                   "the folder of hosts, groups and keys; it exists. Default: HYPERLOOP_NODE, else "
                   "/etc/hyperloop")
      ->type_name("DIR");
  init->callback([=] { *chosen = [=] { return RunInit(*arguments); }; });
}

}  // namespace hyperloop::ctl
