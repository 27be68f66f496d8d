// hyperloopctl agent: what operators tell the agents of a group, through its replicas.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/agent_mark.h"
#include "common/group_error.h"
#include "common/printable.h"
#include "common/uuid.h"
#include "control/client.h"
#include "control/directive.h"
#include "control/proposal.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

// Who has the group, as a majority of its replicas says.
struct GroupOwner {
  std::string id;    // as Directive::owner; empty: no majority says the same
  std::string name;  // for people
  std::string node;  // whose agent started it; empty: none did
  uint64_t epoch = 0;
  bool released = false;
  bool serves = false;  // its epoch is installed
};

// Reads and changes what a group's agents are told. It asks each time on connections of its own.
class AgentOrders {
 public:
  using Edit = std::function<Status(const GroupOwner& owner, Directive* directive)>;

  static Result<AgentOrders> Create(const Where& where) {
    HL_ASSIGN_OR_RETURN(const std::string uri, UriOf(where));
    StoreOptions options;
    HL_RETURN_IF_ERROR(ParseStoreUri(uri, &options));
    HL_ASSIGN_OR_RETURN(control::Trust trust, control::Trust::Load(options.keys, nullptr));
    std::vector<std::string> listed;
    for (const std::string& each : options.replicas) {
      HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(each));
      listed.push_back(endpoint.ToString());
    }
    return AgentOrders(std::move(listed), std::move(trust));
  }

  // Asks all replicas of the group, those that are left out, too.
  Status Look() {
    std::map<std::string, Result<control::HelloReplyT>> answers = HelloEach(listed_);
    std::vector<control::HelloReplyT> hellos;
    std::vector<Status> reasons;
    for (const std::string& address : listed_) {
      const Result<control::HelloReplyT>& answer = answers.at(address);
      if (answer.ok()) hellos.push_back(*answer);
      if (!answer.ok()) reasons.push_back(answer.status());
    }
    if (hellos.empty()) return AllReasons(reasons);
    const control::HelloReplyT* const seen = control::ToldByMost(hellos, listed_.size());
    if (seen == nullptr) {
      // Most answer, and they differ: the group is being changed.
      const bool changes = 2 * hellos.size() > listed_.size();
      reasons.insert(reasons.begin(),
                     Status(changes ? Code::kBusy : Code::kUnavailable,
                            "try again when more of the replicas answer alike: no configuration of "
                            "one group is told by more than half of those that the URI lists"));
      return AllReasons(reasons);
    }
    if (seen->installed_epoch == 0)
      return InvalidArgument("the listed replicas are not a group yet: open a database on them");
    group_ = seen->group;
    replicas_ = seen->installed_replicas;
    std::ranges::copy(seen->absent_replicas, std::back_inserter(replicas_));
    std::vector<std::string> others;
    std::ranges::copy_if(replicas_, std::back_inserter(others),
                         [&](const std::string& each) { return !answers.contains(each); });
    answers.merge(HelloEach(others));
    std::erase_if(answers,
                  [&](const auto& each) { return std::ranges::count(replicas_, each.first) == 0; });
    answers_ = std::move(answers);
    for (const auto& [address, answer] : answers_)
      if (answer.ok() && answer->directive != nullptr)
        greatest_ = std::max(greatest_, answer->directive->count);
    return {};
  }

  const std::string& group() const { return group_; }
  const std::vector<std::string>& replicas() const { return replicas_; }
  size_t Majority() const { return replicas_.size() / 2 + 1; }

  GroupOwner Owner() const {
    std::map<std::pair<uint64_t, std::vector<uint8_t>>, size_t> told;
    GroupOwner owner;
    size_t released = 0, serves = 0;
    for (const auto& [address, answer] : answers_) {
      if (!answer.ok() || answer->sealed_owner.size() != sizeof(Uuid)) continue;
      if (++told[{answer->sealed_epoch, answer->sealed_owner}] < Majority()) continue;
      Uuid id{};
      std::ranges::copy(answer->sealed_owner, id.begin());
      owner.id = FormatUuid(id);
      owner.epoch = answer->sealed_epoch;
    }
    for (const auto& [address, answer] : answers_) {
      if (owner.id.empty() || !answer.ok() || answer->sealed_epoch != owner.epoch) continue;
      released += answer->released ? 1 : 0;
      const bool installed = answer->installed_epoch == owner.epoch;
      serves += installed ? 1 : 0;
      // The name may be the former owner's until its epoch is installed.
      if (installed || owner.name.empty()) owner.name = answer->sealed_owner_name;
    }
    const std::string_view tag = AgentTagOf(owner.name);
    owner.node = tag.substr(0, tag.find('/'));
    owner.released = released >= Majority();
    owner.serves = serves >= Majority();
    return owner;
  }

  // What agents that see all these replicas obey, and by how many of them it is told alike.
  Directive Told(size_t* alike) const {
    Directive told;
    *alike = 0;
    for (const auto& [address, answer] : answers_) {
      if (!answer.ok()) continue;
      const Directive each = control::FromMessage(answer->directive.get());
      const size_t same = static_cast<size_t>(std::ranges::count_if(answers_, [&](const auto& it) {
        return it.second.ok() && control::FromMessage(it.second->directive.get()) == each;
      }));
      if (same < Majority() && each.number < told.number) continue;
      told = each;
      *alike = same;
      if (same >= Majority()) break;
    }
    return told;
  }

  // Why the replica does not tell it; ok: it does.
  Status Tells(const std::string& address, const Directive& told) const {
    const Result<control::HelloReplyT>& answer = answers_.at(address);
    if (!answer.ok()) return answer.status();
    if (answer->directive == nullptr) return KeepsNone(address);
    if (control::FromMessage(answer->directive.get()) == told) return {};
    return Unavailable("it has another one: " +
                       control::DirectiveText(control::FromMessage(answer->directive.get())));
  }

  // Durable at a majority when it returns. Of two that change it at a time, each knows the other's
  // change or begins anew.
  Result<Directive> Change(const Edit& edit) {
    std::random_device random;
    bool perhaps = false;  // an earlier try may be obeyed
    for (int i = 0; i < kTries; ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 300));
      const Status seen = Look();
      if (seen.code() == Code::kBusy && i + 1 < kTries) continue;
      HL_RETURN_IF_ERROR(seen);
      const DirectiveNumber number{greatest_ + 1, (uint64_t{random()} << 32) | random()};
      const Round promised = Ask(number, nullptr);
      if (promised.granted < Majority()) {
        if (promised.rivals) continue;
        return Missing(promised, perhaps ? kPerhaps : "agents are told nothing new");
      }
      Directive directive = promised.newest;
      const Status edited = edit(Owner(), &directive);
      // What was promised is kept, with what agents are told already: else no agent could give that
      // to a replica that has missed it.
      if (!edited.ok()) directive = promised.newest;
      directive.number = number;
      if (!edited.ok()) {
        if (directive != Empty(number)) Ask(number, &directive);
        return edited;
      }
      directive.by = Who();
      directive.when = static_cast<uint64_t>(std::time(nullptr));
      const Round given = Ask(number, &directive);
      if (given.granted >= Majority()) return directive;
      perhaps = true;
      if (given.rivals) continue;
      return Missing(given, kPerhaps);
    }
    return Busy(Text("repeat the command: another one changes what the agents are told just now",
                     perhaps ? Text(", and ", kPerhaps) : ""));
  }

 private:
  static constexpr std::chrono::seconds kPatience{5};
  static constexpr int kTries = 8;
  static constexpr char kPerhaps[] =
      "it is not known whether the agents obey this; repeat the command";

  static Directive Empty(const DirectiveNumber& number) {
    Directive directive;
    directive.number = number;
    return directive;
  }

  struct Round {
    size_t granted = 0;
    bool rivals = false;  // a replica has promised a greater number
    Directive newest;     // of those that granted it
    std::vector<Status> reasons;
  };

  AgentOrders(std::vector<std::string> listed, control::Trust trust)
      : listed_(std::move(listed)), trust_(std::move(trust)) {}

  template <class Reply, class Request>
  Result<Reply> Call(const std::string& address, Request request) const {
    HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
    HL_ASSIGN_OR_RETURN(const auto client,
                        control::ControlClient::Connect(endpoint, trust_, kPatience));
    return client->Call<Reply>(std::move(request), kPatience);
  }

  std::map<std::string, Result<control::HelloReplyT>> HelloEach(
      const std::vector<std::string>& addresses) const {
    std::map<std::string, Result<control::HelloReplyT>> answers;
    if (addresses.empty()) return answers;
    std::vector<Result<control::HelloReplyT>> hellos = AtOnce(addresses.size(), [&](size_t i) {
      return Call<control::HelloReplyT>(addresses[i], control::HelloRequestT{});
    });
    for (size_t i = 0; i < addresses.size(); ++i)
      answers.emplace(addresses[i], std::move(hellos[i]));
    return answers;
  }

  static Status KeepsNone(const std::string& address) {
    return NotSupported(Text("install this release at replica ", address,
                             ": its own keeps nothing that agents are told"));
  }

  Round Ask(const DirectiveNumber& number, const Directive* directive) {
    const auto replies = AtOnce(replicas_.size(), [&](size_t i) -> Result<control::DirectReplyT> {
      const Result<control::HelloReplyT>& hello = answers_.at(replicas_[i]);
      if (!hello.ok()) return hello.status();
      if (hello->directive == nullptr) return KeepsNone(replicas_[i]);
      control::DirectRequestT request;
      request.group = group_;
      request.count = number.count;
      request.writer = number.writer;
      if (directive != nullptr) request.directive = control::ToMessage(*directive);
      return Call<control::DirectReplyT>(replicas_[i], std::move(request));
    });
    Round round;
    for (size_t i = 0; i < replies.size(); ++i) {
      if (!replies[i].ok()) {
        round.reasons.push_back(replies[i].status());
        continue;
      }
      greatest_ = std::max(greatest_, replies[i]->promised_count);
      const Directive has = control::FromMessage(replies[i]->directive.get());
      if (replies[i]->granted) {
        ++round.granted;
        if (has.number > round.newest.number) round.newest = has;
      } else {
        round.rivals = true;
      }
    }
    return round;
  }

  Status Missing(const Round& round, const std::string& what) const {
    std::vector<Status> reasons = round.reasons;
    const Status first = round.reasons.empty() ? Unavailable("") : round.reasons.front();
    reasons.insert(reasons.begin(),
                   Status(first.code(), Text("only ", round.granted, " of ", replicas_.size(),
                                             " replicas took it, and ", what)));
    return AllReasons(reasons);
  }

  static std::string Who() {
    const char* const user = std::getenv("USER");
    char host[65] = {};
    if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
    return Printable(
        Text(user == nullptr ? Text("uid ", getuid()) : std::string(user), " on ", host),
        kMaxDirectiveBy);
  }

  std::vector<std::string> listed_;
  control::Trust trust_;
  std::string group_;
  std::vector<std::string> replicas_;  // of the group
  std::map<std::string, Result<control::HelloReplyT>> answers_;
  uint64_t greatest_ = 0;  // number that was seen
};

struct AgentArguments {
  Where where;
  std::string node;
  uint32_t wait = 60;
  bool json = false;
};

std::string OwnerSentence(const GroupOwner& owner) {
  if (owner.id.empty()) return "no majority says who has the group";
  if (owner.released)
    return Text("nobody has the group: ", Printable(owner.name, 256), " closed it");
  if (owner.node.empty())
    return Text("owner ", Printable(owner.name, 256), ", which no agent has started");
  return Text("node ", owner.node, " has the group (epoch ", owner.epoch, ")");
}

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

Status EditSwitchover(const std::string& node, const GroupOwner& owner, Directive* directive) {
  if (directive->paused)
    return InvalidArgument("hyperloopctl agent resume comes first: the agents are paused");
  if (directive->Drains(node))
    return InvalidArgument(
        Text("hyperloopctl agent undrain ", node, " comes first: it is drained"));
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
      [&](AgentOrders& orders) {
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
      });
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
}

}  // namespace hyperloop::ctl
