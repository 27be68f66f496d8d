// The kinds of chaos, by name. Each begins with a whole group and a closed directory, and may leave
// them in any state: World::Settle restores and judges them.
#pragma once

#include <string>
#include <vector>

#include "crash/chaos/world.h"

namespace hyperloop::chaos {

struct Action {
  std::string name;
  void (*run)(World& world);
};

std::vector<Action> FaultActions();    // kills, stops and restarts
std::vector<Action> MisuseActions();   // wrong URIs, wrong directories, takeovers
std::vector<Action> DamageActions();   // bits and bytes of pools and local files, full disks
std::vector<Action> ToolActions();     // stock tools
std::vector<Action> ShrinkActions();   // groups that go on without a replica
std::vector<Action> MachineActions();  // another primary, other replicas
std::vector<Action> AllActions();

}  // namespace hyperloop::chaos
