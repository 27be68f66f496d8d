#include "ctl/agents.h"

#include <CLI/CLI.hpp>

#include "hyperloop/core/text.h"
#include "options/node_group.h"

namespace hyperloop::ctl {

void AddAgentPlaces(CLI::App* command, AgentPlaces* places) {
  command
      ->add_option(
          "--group", places->group,
          "the group of this name in this host's files (/etc/hyperloop, or the folder that "
          "HYPERLOOP_NODE names): its hosts have the agents, at the http_port that its "
          "file says")
      ->type_name("NAME");
  command
      ->add_option("--agent", places->given,
                   "an agent's --http, where the group is not one of this host's files, or an "
                   "agent besides. May be repeated")
      ->type_name("ADDRESS:PORT");
}

Result<std::vector<AgentPlace>> AgentsOf(const AgentPlaces& places) {
  std::vector<AgentPlace> agents;
  if (!places.group.empty()) {
    HL_ASSIGN_OR_RETURN(const NodeGroup group, ReadNodeGroup(places.group));
    if (group.agents.empty())
      return NotFound(Text("add a line such as http_port = 7480 to ", group.file,
                           ", on all hosts alike, and start the agents anew: it does not say where "
                           "they show their pages"));
    for (const auto& [node, address] : group.agents) agents.push_back({node, address});
  }
  for (const std::string& each : places.given) agents.push_back({"", each});
  if (agents.empty())
    return InvalidArgument("give --group NAME of this host's files, or --agent ADDRESS:PORT");
  return agents;
}

}  // namespace hyperloop::ctl
