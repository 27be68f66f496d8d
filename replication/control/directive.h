// What operators told a group's agents, as control messages carry it.
#pragma once

#include <memory>
#include <string>

#include "control/messages.h"
#include "hyperloop/replication/directive.h"

namespace hyperloop::control {

std::unique_ptr<AgentDirectiveT> ToMessage(const hyperloop::Directive& directive);
// No directive: what `message` is null for.
hyperloop::Directive FromMessage(const AgentDirectiveT* message);

// For people: "paused; switchover to b; no service on c (ann on host1)".
std::string DirectiveText(const hyperloop::Directive& directive);

}  // namespace hyperloop::control
