// hyperloopctl agent: what operators tell the agents of a group, through its replicas.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "common/agent_mark.h"
#include "common/printable.h"
#include "control/directive.h"
#include "ctl/agent_orders.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

// For so long nobody may show a sign of life before a group is told to fail over. A primary shows
// several in that time, the slowest one.
constexpr std::chrono::seconds kSilence{4};

struct AgentArguments {
  Where where;
  std::string node;
  uint32_t wait = 60;
  bool json = false;
  bool yes = false;
};

std::string WhenText(uint64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&time, &parts) != nullptr)
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

int AgentStatus(const AgentArguments& arguments) {
  Result<AgentOrders> orders = AgentOrders::Create(arguments.where);
  if (!orders.ok()) return Fail(orders.status());
  if (const Status seen = orders->Look(); !seen.ok()) return Fail(seen);
  const GroupOwner owner = orders->Owner();
  size_t alike = 0;
  const Directive told = orders->Told(&alike);
  const bool most = alike >= orders->Majority();
  if (arguments.json) {
    nlohmann::ordered_json json{{"group", orders->group()},
                                {"epoch", owner.epoch},
                                {"owner", owner.name},
                                {"owner_node", owner.node},
                                {"released", owner.released},
                                {"paused", told.paused},
                                {"switchover_to", told.owner == owner.id ? told.node : ""},
                                {"drained", told.drained},
                                {"by", told.by},
                                {"when", told.when},
                                {"told_by_most", most},
                                {"replicas", nlohmann::ordered_json::array()}};
    for (const std::string& each : orders->replicas())
      json["replicas"].push_back(
          {{"address", each}, {"error", orders->Tells(each, told).message()}});
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return kExitOk;
  }
  std::printf("group %s\n%s\nagents: %s%s%s\n", orders->group().c_str(),
              OwnerSentence(owner).c_str(), control::DirectiveText(told).c_str(),
              told.number.count == 0 ? "" : ", since ",
              told.number.count == 0 ? "" : WhenText(told.when).c_str());
  if (!most)
    std::printf("NOT BY MOST: %zu of %zu replicas tell it; repeat the command that gave it\n",
                alike, orders->replicas().size());
  for (const std::string& each : orders->replicas()) {
    const Status tells = orders->Tells(each, told);
    std::printf("  replica %s  %s\n", each.c_str(),
                tells.ok() ? "tells it" : Printable(tells.message(), 1024).c_str());
  }
  return kExitOk;
}

// Waits until `done` says a text, which is printed, or an error, or the time is over.
int AwaitOwner(AgentOrders& orders, uint32_t wait, const std::string& failed,
               const std::function<Result<std::string>(const GroupOwner&)>& done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(wait);
  while (true) {
    const Status seen = orders.Look();
    const GroupOwner owner = seen.ok() ? orders.Owner() : GroupOwner();
    const Result<std::string> text = seen.ok() ? done(owner) : std::string();
    if (!text.ok()) return Fail(text.status());
    if (!text->empty()) {
      std::printf("%s\n", text->c_str());
      return kExitOk;
    }
    if (std::chrono::steady_clock::now() >= until) {
      return Fail(TimedOut(Text(failed, " after ", wait,
                                " s: ", seen.ok() ? OwnerSentence(owner) : seen.message())));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

int TellAgents(const AgentArguments& arguments, const AgentOrders::Edit& edit,
               const std::function<int(AgentOrders&)>& then = nullptr) {
  Result<AgentOrders> orders = AgentOrders::Create(arguments.where);
  if (!orders.ok()) return Fail(orders.status());
  const Result<Directive> made = orders->Change(edit);
  if (!made.ok()) return Fail(made.status());
  std::printf("agents: %s\n", control::DirectiveText(*made).c_str());
  std::fflush(stdout);
  return then ? then(*orders) : static_cast<int>(kExitOk);
}

Status CheckNodeName(const std::string& node) {
  if (IsAgentTag(node) && node.size() <= kMaxDirectiveNode && node.find('/') == std::string::npos)
    return {};
  return InvalidArgument(Text("node '", node, "': give 1 to ", kMaxDirectiveNode,
                              " letters, digits, dots, dashes and underscores, as the agent's "
                              "--node"));
}

int PauseAgents(const AgentArguments& arguments, bool paused) {
  return TellAgents(arguments, [paused](const GroupOwner&, Directive* directive) {
    directive->paused = paused;
    if (paused) directive->owner = directive->node = "";
    return Status();
  });
}

// What each command that moves the service needs.
Status CheckMay(const std::string& node, const Directive& directive) {
  if (directive.paused)
    return InvalidArgument("hyperloopctl agent resume comes first: the agents are paused");
  if (directive.Drains(node))
    return InvalidArgument(
        Text("hyperloopctl agent undrain ", node, " comes first: it is drained"));
  return {};
}

Status EditSwitchover(const std::string& node, const GroupOwner& owner, Directive* directive) {
  HL_RETURN_IF_ERROR(CheckMay(node, *directive));
  if (owner.id.empty() || owner.released || owner.node.empty())
    return Unavailable(
        Text("only a service that an agent has started is moved, and there is none "
             "now: ",
             OwnerSentence(owner)));
  const bool here = owner.node == node;  // then nothing is to be done, now or later
  directive->owner = here ? "" : owner.id;
  directive->node = here ? "" : node;
  return {};
}

// Waits until the node has the group, or another one has taken it from `former`.
int AwaitNode(AgentOrders& orders, const AgentArguments& arguments, const std::string& former) {
  const std::string& node = arguments.node;
  return AwaitOwner(
      orders, arguments.wait,
      "the agents are told so until you pause and resume them, and the group "
      "has not changed nodes",
      [&](const GroupOwner& owner) -> Result<std::string> {
        const bool here = owner.node == node && !owner.released;
        const bool moved = owner.id != former || here;
        if (!moved || !owner.serves || owner.released) return std::string();
        if (here) return OwnerSentence(owner);
        return Unavailable(Text("look at the agent of ", node,
                                ", which has not taken the group: ", OwnerSentence(owner)));
      });
}

int SwitchAgents(const AgentArguments& arguments) {
  const std::string& node = arguments.node;
  if (const Status named = CheckNodeName(node); !named.ok()) return Fail(named);
  std::string former;
  return TellAgents(
      arguments,
      [&](const GroupOwner& owner, Directive* directive) {
        former = owner.id;
        return EditSwitchover(node, owner, directive);
      },
      [&](AgentOrders& orders) { return AwaitNode(orders, arguments, former); });
}

Status LookAndCheck(AgentOrders& orders, const std::string& node) {
  HL_RETURN_IF_ERROR(orders.Look());
  size_t alike = 0;
  return CheckMay(node, orders.Told(&alike));
}

// The owner that has shown no sign of life at any replica that answers, for kSilence. kBusy: it
// has, or another one came.
Result<GroupOwner> SilentOwner(AgentOrders& orders, const std::string& node) {
  HL_RETURN_IF_ERROR(LookAndCheck(orders, node));
  const GroupOwner owner = orders.Owner();
  if (owner.id.empty())
    return Busy(
        "repeat the command in a while: no majority of the replicas says who has the "
        "group, as while it is being taken");
  if (owner.released) return owner;  // nobody is to show any
  if (owner.node == node)
    return InvalidArgument(
        Text("name the node that is to take the group: ", node, " is the one that has it"));
  std::map<std::string, uint64_t> seen = orders.Heartbeats();
  const auto until = std::chrono::steady_clock::now() + kSilence;
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    HL_RETURN_IF_ERROR(orders.Look());
    if (orders.Owner().id != owner.id)
      return Busy(Text("the group has just changed hands: ", OwnerSentence(orders.Owner())));
    for (const auto& [address, beat] : orders.Heartbeats()) {
      if (seen.try_emplace(address, beat).first->second == beat) continue;
      return Busy(Text("hyperloopctl agent switchover --to ", node,
                       " moves a service that lives. "
                       "If it is of no use, end its agent and it, on its host: replica ",
                       address, " has seen a sign of life of it just now, and ",
                       OwnerSentence(owner)));
    }
  }
  return owner;
}

int FailAgentsOver(const AgentArguments& arguments) {
  const std::string& node = arguments.node;
  if (const Status named = CheckNodeName(node); !named.ok()) return Fail(named);
  Result<AgentOrders> orders = AgentOrders::Create(arguments.where);
  if (!orders.ok()) return Fail(orders.status());
  const Result<GroupOwner> silent = SilentOwner(*orders, node);
  if (!silent.ok()) return Fail(silent.status());
  std::printf(
      "%s%s\nthe agents would be told to leave the group to node %s, whose agent takes it "
      "when it sees that it is free; whatever is left of the former service can write no "
      "more from then on, and nothing that was acknowledged is lost\n",
      OwnerSentence(*silent).c_str(),
      silent->released ? "" : ", and shows no sign of life at any replica that answers",
      node.c_str());
  std::fflush(stdout);
  if (!arguments.yes) return Fail(InvalidArgument("say --yes if that is meant: nothing was done"));
  return TellAgents(
      arguments,
      [&](const GroupOwner& owner, Directive* directive) -> Status {
        HL_RETURN_IF_ERROR(CheckMay(node, *directive));
        if (owner.id != silent->id)
          return Busy(Text("the group has just changed hands: ", OwnerSentence(owner)));
        directive->owner = owner.id;
        directive->node = node;
        return {};
      },
      [&](AgentOrders& told) { return AwaitNode(told, arguments, silent->id); });
}

int DrainNode(const AgentArguments& arguments) {
  const std::string& node = arguments.node;
  if (const Status named = CheckNodeName(node); !named.ok()) return Fail(named);
  return TellAgents(
      arguments,
      [&](const GroupOwner& owner, Directive* directive) -> Status {
        if (directive->paused && owner.node == node && !owner.released)
          return InvalidArgument(
              Text("hyperloopctl agent resume comes first: the agents are "
                   "paused, and ",
                   OwnerSentence(owner)));
        if (directive->node == node) directive->owner = directive->node = "";
        if (directive->Drains(node)) return {};
        if (directive->drained.size() == kMaxDrained) {
          return InvalidArgument(Text("undrain a node first: ", kMaxDrained,
                                      " are drained, which is as many as there can be"));
        }
        directive->drained.push_back(node);
        return {};
      },
      [&](AgentOrders& orders) {
        return AwaitOwner(orders, arguments.wait, "the service has not left the node",
                          [&](const GroupOwner& owner) -> Result<std::string> {
                            // One that is taking the group may be of this node.
                            if (!owner.released && !owner.serves) return std::string();
                            if (owner.node == node && !owner.released) return std::string();
                            return Text("no service has the group on node ", node, "; ",
                                        OwnerSentence(owner));
                          });
      });
}

int UndrainNode(const AgentArguments& arguments) {
  if (const Status named = CheckNodeName(arguments.node); !named.ok()) return Fail(named);
  return TellAgents(arguments, [&](const GroupOwner&, Directive* directive) -> Status {
    if (std::erase(directive->drained, arguments.node) != 0) return {};
    return InvalidArgument(
        Text("node ", arguments.node, " is not drained: ", control::DirectiveText(*directive)));
  });
}

void AddWaitOption(CLI::App* command, AgentArguments* arguments) {
  command->add_option("--wait", arguments->wait, "how many seconds it may take")
      ->check(CLI::Range(1u, 86400u))
      ->type_name("SECONDS")
      ->capture_default_str();
}

}  // namespace

void AddAgent(CLI::App& app, Action* chosen) {
  const auto arguments = std::make_shared<AgentArguments>();
  CLI::App* const agent = app.add_subcommand(
      "agent", "look at and command the agents that make a group's service fail over by itself");
  agent->require_subcommand(1);
  agent->footer(
      "What agents are told is kept by the group's replicas, and read from a majority of them at "
      "each look of an\nagent. A command that was acknowledged is obeyed by each decision that an "
      "agent bases on a later look, until\nanother command is given. To change it, the replicas "
      "must trust this machine's identity with the role primary.");
  const auto add = [&](const char* name, const char* text,
                       int (*run)(const AgentArguments& arguments)) {
    CLI::App* const command = agent->add_subcommand(name, text);
    AddWhere(command, &arguments->where);
    command->callback([=] { *chosen = [=] { return run(*arguments); }; });
    return command;
  };
  add("status", "show who has the group, what its agents are told, and which replicas tell it",
      AgentStatus)
      ->add_flag("--json", arguments->json, "as JSON");
  add("pause",
      "no agent starts a service, and none ends a healthy one, whatever happens, until resume",
      [](const AgentArguments& given) { return PauseAgents(given, true); });
  add("resume", "agents start and end services again",
      [](const AgentArguments& given) { return PauseAgents(given, false); });
  CLI::App* const switchover = add(
      "switchover",
      "move the service to another node: its node ends it in order, and the other one starts it. "
      "If that one does not within its --take-timeout, any node does",
      SwitchAgents);
  switchover->add_option("--to", arguments->node, "the node, as its agent's --node")
      ->required()
      ->type_name("NODE");
  AddWaitOption(switchover, arguments.get());
  CLI::App* const failover = add(
      "failover",
      "have another node take the group when the node that has it is dead, or shows no sign of "
      "life, and agents have not done so by themselves. Refused while a primary lives: switchover "
      "moves that. Without --yes it says what it would do, and does nothing",
      FailAgentsOver);
  failover->add_option("--node,--to", arguments->node, "the node that is to take it")
      ->required()
      ->type_name("NODE");
  failover->add_flag("--yes", arguments->yes, "do it");
  AddWaitOption(failover, arguments.get());
  CLI::App* const drain =
      add("drain", "no agent starts the service on this node, and the one that runs there is ended",
          DrainNode);
  drain->add_option("node", arguments->node, "as its agent's --node")
      ->required()
      ->type_name("NODE");
  AddWaitOption(drain, arguments.get());
  add("undrain", "the service may run on this node again", UndrainNode)
      ->add_option("node", arguments->node, "as its agent's --node")
      ->required()
      ->type_name("NODE");
  AddAgentHistory(*agent, chosen);
  AddAgentCheck(*agent, chosen);
}

}  // namespace hyperloop::ctl
