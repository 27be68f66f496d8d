// hyperloopctl: manages emulated clusters; inspects, exports and uses replicated groups.
#include "ctl/command.h"
#include "hyperloop/command_line/command_line.h"

namespace {

constexpr char kVersion[] = "hyperloopctl " HYPERLOOP_VERSION;

// Each command takes --version, too, without saying so in its help.
void AddHiddenVersion(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    if (command->get_name().empty()) continue;  // a group of options
    command->set_version_flag("--version", kVersion)->group("");
    AddHiddenVersion(*command);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hyperloop::ctl;
  CLI::App app(
      "Runs emulated clusters, looks at replicas, exports what they hold, and runs RocksDB "
      "programs on a group.",
      "hyperloopctl");
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is wrong;\n"
      "3 (export) done, but what stderr names is missing, damaged or may end too early.\n"
      "hyperloopctl COMMAND --help explains one command; docs/operations.md shows them at work.");
  Action chosen;
  AddCluster(app, &chosen);
  AddStatus(app, &chosen);
  AddWait(app, &chosen);
  AddTop(app, &chosen);
  AddCounters(app, &chosen);
  AddVerify(app, &chosen);
  AddDump(app, &chosen);
  AddExport(app, &chosen);
  AddFollow(app, &chosen);
  AddSnapshot(app, &chosen);
  AddExec(app, &chosen);
  AddAdopt(app, &chosen);
  AddPromote(app, &chosen);
  AddStandby(app, &chosen);
  AddSwitchover(app, &chosen);
  AddAdd(app, &chosen);
  AddRemoveReplica(app, &chosen);
  AddReset(app, &chosen);
  AddResize(app, &chosen);
  AddOptions(app, &chosen);
  AddDoctor(app, &chosen);
  AddKeys(app, &chosen);
  AddNode(app, &chosen);
  AddAgent(app, &chosen);
  app.set_version_flag("--version", kVersion);
  AddHiddenVersion(app);
  hyperloop::AddHelpJson(app);
  if (const auto status = hyperloop::ParseCommandLine(app, argc, argv)) return *status;
  return chosen ? chosen() : static_cast<int>(kExitUsage);
}
