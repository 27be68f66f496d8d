// The agents of a group, as a command finds them: by the files of this host, or by addresses that
// are given.
#pragma once

#include <string>
#include <vector>

#include "hyperloop/core/status.h"

namespace CLI {
class App;
}

namespace hyperloop::ctl {

struct AgentPlaces {
  std::string group;  // the name of the group in this host's files; empty: the agents are given
  std::vector<std::string> given;  // ADDRESS:PORT
};
void AddAgentPlaces(CLI::App* command, AgentPlaces* places);

struct AgentPlace {
  std::string node;     // empty: not known
  std::string address;  // ADDRESS:PORT of its pages
  std::string Name() const { return node.empty() ? address : "node " + node; }
};
// kInvalidArgument and kNotFound: neither a group nor an agent is named, or the group's file says
// no http_port.
Result<std::vector<AgentPlace>> AgentsOf(const AgentPlaces& places);

}  // namespace hyperloop::ctl
