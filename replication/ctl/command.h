// Declarations that the subcommands of hyperloopctl share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "hyperloop/core/status.h"

namespace CLI {
class App;
}

namespace hyperloop::ctl {

// Exit statuses, documented in --help and docs/operations.md.
enum ExitStatus {
  kExitOk = 0,
  kExitFailure = 1,     // the command failed; the reason is on stderr
  kExitUsage = 2,       // the command line is wrong
  kExitIncomplete = 3,  // export: done, but files are missing, damaged or may end too early
};

using Action = std::function<int()>;

// Each adds one subcommand; parsing it sets *chosen to what it does.
void AddCluster(CLI::App& app, Action* chosen);
void AddStatus(CLI::App& app, Action* chosen);
void AddWait(CLI::App& app, Action* chosen);
void AddTop(CLI::App& app, Action* chosen);
void AddCounters(CLI::App& app, Action* chosen);
void AddVerify(CLI::App& app, Action* chosen);
void AddDump(CLI::App& app, Action* chosen);
void AddExport(CLI::App& app, Action* chosen);
void AddFollow(CLI::App& app, Action* chosen);
void AddSnapshot(CLI::App& app, Action* chosen);
void AddExec(CLI::App& app, Action* chosen);
void AddAdopt(CLI::App& app, Action* chosen);
void AddPromote(CLI::App& app, Action* chosen);
void AddStandby(CLI::App& app, Action* chosen);
void AddSwitchover(CLI::App& app, Action* chosen);
void AddAdd(CLI::App& app, Action* chosen);
void AddRemoveReplica(CLI::App& app, Action* chosen);
void AddReset(CLI::App& app, Action* chosen);
void AddResize(CLI::App& app, Action* chosen);
void AddOptions(CLI::App& app, Action* chosen);
void AddDoctor(CLI::App& app, Action* chosen);
void AddKeys(CLI::App& app, Action* chosen);
void AddNode(CLI::App& app, Action* chosen);
void AddAgent(CLI::App& app, Action* chosen);
// Subcommands of agent.
void AddAgentCheck(CLI::App& agent, Action* chosen);
void AddAgentHistory(CLI::App& agent, Action* chosen);

// Prints "hyperloopctl: reason" and returns kExitUsage for kInvalidArgument, else kExitFailure.
int Fail(const Status& status);

// 268435456 → "256 MiB"; exact, so 1000 → "1000 B".
std::string FormatSize(uint64_t bytes);

}  // namespace hyperloop::ctl
