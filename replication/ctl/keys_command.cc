// hyperloopctl keys
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "ctl/command.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::ctl {
namespace {

using identity::KeyRing;
using identity::TrustedPeer;

struct Arguments {
  std::string dir, name, key, roles, endpoint;
};

int Show(const Arguments& arguments) {
  const auto ring = KeyRing::Load(arguments.dir);
  if (!ring.ok()) return Fail(ring.status());
  if (arguments.roles.empty()) {  // no role is given by default
    std::printf("%s %s ROLES%s\n", (*ring)->name().c_str(),
                identity::KeyText((*ring)->public_key()).c_str(),
                arguments.endpoint.empty() ? "" : (" " + arguments.endpoint).c_str());
    return kExitOk;
  }
  const auto roles = identity::ParseRoles(arguments.roles);
  if (!roles.ok()) return Fail(roles.status().WithContext("--roles"));
  const TrustedPeer own{(*ring)->name(), (*ring)->public_key(), *roles, arguments.endpoint};
  std::printf("%s\n", own.Line().c_str());
  return kExitOk;
}

int Init(const Arguments& arguments) {
  const Status made = identity::MakeIdentity(arguments.dir, arguments.name);
  if (made.code() == Code::kAlreadyExists) {
    return Fail(Status(made.code(), made.message() +
                                        "; to change this host's key make another directory, let "
                                        "the others trust its key, too, and move its identity "
                                        "file here"));
  }
  if (!made.ok()) return Fail(made);
  std::fprintf(stderr,
               "%s is the identity of %s. Its line for the trusted file of every other host, with "
               "the roles\nthat it needs there (hyperloopctl keys trust adds it):\n",
               arguments.dir.c_str(), arguments.name.c_str());
  return Show(arguments);
}

int Trust(const Arguments& arguments) {
  TrustedPeer peer{arguments.name, {}, 0, arguments.endpoint};
  const auto key = identity::ParseKey(arguments.key);
  if (!key.ok()) return Fail(key.status());
  const auto roles = identity::ParseRoles(arguments.roles);
  if (!roles.ok()) return Fail(roles.status());
  peer.key = *key;
  peer.roles = *roles;
  const Status status = identity::Trust(arguments.dir, peer);
  if (!status.ok()) return Fail(status);
  std::printf("%s\n", peer.Line().c_str());
  return kExitOk;
}

int Verify(const Arguments& arguments) {
  const auto ring = KeyRing::Load(arguments.dir);
  if (!ring.ok()) return Fail(ring.status());
  const auto trusted = (*ring)->trusted();
  std::printf("this host  %s %s\n", (*ring)->name().c_str(),
              identity::KeyText((*ring)->public_key()).c_str());
  for (const TrustedPeer& each : trusted) std::printf("trusted    %s\n", each.Line().c_str());
  if (trusted.empty())
    std::printf("trusted    nobody: hyperloopctl keys trust adds the other hosts\n");
  for (const TrustedPeer& each : trusted) {
    if (each.name == (*ring)->name() && each.key != (*ring)->public_key())
      std::printf("note: %s is this host's name with another key (an old or a coming one)\n",
                  each.name.c_str());
  }
  return kExitOk;
}

// A subcommand of `keys` on a directory.
CLI::App* Add(CLI::App* keys, const char* name, const char* text,
              const std::shared_ptr<Arguments>& arguments, Action* chosen,
              int (*run)(const Arguments&)) {
  CLI::App* const command = keys->add_subcommand(name, text);
  command->add_option("--dir", arguments->dir, "the keys directory")->required()->type_name("DIR");
  command->callback([=] { *chosen = [=] { return run(*arguments); }; });
  return command;
}

void AddLineOptions(CLI::App* command, const std::shared_ptr<Arguments>& arguments) {
  command
      ->add_option("--roles", arguments->roles,
                   "roles in the line that is printed; by default it says ROLES, to be replaced")
      ->type_name("ROLES");
  command
      ->add_option("--endpoint", arguments->endpoint,
                   "where others find this host, in the line that is printed")
      ->type_name("ADDRESS:PORT");
}

}  // namespace

void AddKeys(CLI::App& app, Action* chosen) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* const keys = app.add_subcommand(
      "keys", "make, show and change keys directories: this host's identity and whom it trusts");
  keys->require_subcommand(1);
  keys->footer(
      "A keys directory has two files. identity: this host's name and secret key, mode 0600; it "
      "never leaves\nthe host. trusted: a line NAME PUBLIC_KEY_HEX ROLES [ENDPOINT] for each host "
      "that may connect, and to\nwhich this one may connect. ROLES are a comma list of what that "
      "host may be here: primary (takes and\nwrites a group), replica (keeps a copy), link (its "
      "RNIC daemon).\nDaemons read both again when a connection begins; nothing is restarted. To "
      "change a host's key:\n"
      "  hyperloopctl keys init --dir DIR.new --name NAME     on that host\n"
      "  hyperloopctl keys trust --dir DIR NAME KEY ROLES     on each other host; the old key "
      "stays\n"
      "  mv DIR.new/identity DIR/identity                     on that host\n"
      "then delete the line of the old key from each trusted file.");
  CLI::App* const init =
      Add(keys, "init", "make this host's identity; an existing one is never overwritten",
          arguments, chosen, Init);
  init->add_option("--name", arguments->name,
                   "this host's name: 1 to 63 of [A-Za-z0-9._-], as other hosts call it")
      ->required()
      ->type_name("NAME");
  AddLineOptions(init, arguments);
  AddLineOptions(Add(keys, "show", "print this host's line for the trusted file of other hosts",
                     arguments, chosen, Show),
                 arguments);
  CLI::App* const trust = Add(keys, "trust", "add a host to the trusted ones, or change its line",
                              arguments, chosen, Trust);
  trust->add_option("name", arguments->name, "the host's name")->required()->type_name("NAME");
  trust->add_option("key", arguments->key, "its public key, 64 hexadecimal digits")
      ->required()
      ->type_name("KEY");
  trust->add_option("roles", arguments->roles, "a comma list of primary, replica and link")
      ->required()
      ->type_name("ROLES");
  trust->add_option("endpoint", arguments->endpoint, "where it is found")
      ->type_name("ADDRESS:PORT");
  Add(keys, "verify", "check both files, their owners and modes, and print what they say",
      arguments, chosen, Verify);
}

}  // namespace hyperloop::ctl
