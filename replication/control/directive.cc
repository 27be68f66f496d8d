#include "control/directive.h"

#include "hyperloop/core/text.h"

namespace hyperloop::control {

std::unique_ptr<AgentDirectiveT> ToMessage(const hyperloop::Directive& directive) {
  auto message = std::make_unique<AgentDirectiveT>();
  message->count = directive.number.count;
  message->writer = directive.number.writer;
  message->paused = directive.paused;
  message->owner = directive.owner;
  message->node = directive.node;
  message->drained = directive.drained;
  message->by = directive.by;
  message->when = directive.when;
  return message;
}

hyperloop::Directive FromMessage(const AgentDirectiveT* message) {
  hyperloop::Directive directive;
  if (message == nullptr) return directive;
  directive.number = {message->count, message->writer};
  directive.paused = message->paused;
  directive.owner = message->owner;
  directive.node = message->node;
  directive.drained = message->drained;
  directive.by = message->by;
  directive.when = message->when;
  return directive;
}

std::string DirectiveText(const hyperloop::Directive& directive) {
  std::string text = directive.paused ? "paused" : "not paused";
  if (!directive.node.empty()) text += Text("; switchover to ", directive.node);
  for (size_t i = 0; i < directive.drained.size(); ++i)
    text += Text(i == 0 ? "; no service on " : ", ", directive.drained[i]);
  return directive.by.empty() ? text : Text(text, " (", directive.by, ")");
}

}  // namespace hyperloop::control
