// hyperloopctl agent check: whether a group's service would fail over now.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "ctl/agent_orders.h"
#include "ctl/agents.h"
#include "ctl/command.h"
#include "ctl/findings.h"
#include "ctl/http_get.h"
#include "ctl/takeover_check.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

constexpr std::chrono::seconds kCheckPatience{5};
constexpr size_t kMostLacks = 32, kMostLack = 1024;

struct CheckArguments {
  AgentPlaces places;
  Where where;
};

// What an agent says of its node.
struct AgentAnswer {
  std::string node, group, state;
  bool primary = false, able = false;
  std::vector<std::string> lacks;
  FileDigests files;
};

using CheckPage = nlohmann::json;

bool TakeBool(const CheckPage& page, const char* name, bool* value) {
  const auto found = page.find(name);
  if (found == page.end() || !found->is_boolean()) return false;
  *value = found->get<bool>();
  return true;
}

bool TakeWord(const CheckPage& page, const char* name, std::string* value) {
  const auto found = page.find(name);
  if (found == page.end() || !found->is_string()) return false;
  *value = Printable(found->get<std::string>(), kMostLack);
  return true;
}

bool TakeDigests(const CheckPage& page, const char* name,
                 std::map<std::string, std::string>* digests) {
  const auto files = page.find("files");
  if (files == page.end() || !files->is_object()) return false;
  const auto found = files->find(name);
  if (found == files->end() || !found->is_object()) return false;
  for (const auto& [line, digest] : found->items()) {
    if (!digest.is_string()) return false;
    (*digests)[Printable(line, kMostLack)] = digest.get<std::string>();
  }
  return true;
}

std::optional<AgentAnswer> ParseAnswer(const std::string& body) {
  const CheckPage page = CheckPage::parse(body, nullptr, /*allow_exceptions=*/false);
  AgentAnswer answer;
  if (!page.is_object() || !TakeWord(page, "node", &answer.node) ||
      !TakeWord(page, "group", &answer.group) || !TakeWord(page, "state", &answer.state) ||
      !TakeBool(page, "primary", &answer.primary) || !TakeBool(page, "able", &answer.able) ||
      !TakeDigests(page, "hosts", &answer.files.hosts) ||
      !TakeDigests(page, "group", &answer.files.group))
    return {};
  const auto lacks = page.find("lacks");
  if (lacks == page.end() || !lacks->is_array()) return {};
  for (const CheckPage& each : *lacks)
    if (each.is_string() && answer.lacks.size() < kMostLacks)
      answer.lacks.push_back(Printable(each.get<std::string>(), kMostLack));
  return answer;
}

Result<AgentAnswer> AskAgent(const AgentPlace& agent) {
  Result<HttpPage> page = HttpGet(agent.address, "/check", kCheckPatience);
  if (!page.ok()) return page.status();
  std::optional<AgentAnswer> answer = ParseAnswer(page->body);
  if (page->status != 200 || !answer.has_value())
    return Corruption(Text("what answers at ", agent.address,
                           " is no agent of this release: it has no such page as /check"));
  return *std::move(answer);
}

// The names of lines that differ, with the file.
std::string DifferingLines(const FileDigests& here, const FileDigests& there) {
  std::string text;
  const auto add = [&](const std::string& file, const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i)
      text += Text(i != 0 ? ", " : text.empty() ? "" : "; ", i == 0 ? file + ": " : "", names[i]);
  };
  add("hosts", Differences(here.hosts, there.hosts));
  add("the group's file", Differences(here.group, there.group));
  return text;
}

std::vector<Finding> JudgeAgent(const AgentPlace& place, const Result<AgentAnswer>& answer,
                                const CheckArguments& arguments, const FileDigests* here) {
  const std::string& group = arguments.places.group;
  if (!answer.ok())
    return {{Verdict::kBad,
             Text(place.Name(), ": start its agent, or look at its log",
                  group.empty() ? "" : Text(" (systemctl start hyperloop-agent@", group, " there)"),
                  ": ", answer.status().message())}};
  std::vector<Finding> findings;
  const std::string name = "node " + answer->node;
  if (!place.node.empty() && place.node != answer->node)
    findings.push_back({Verdict::kBad, Text(place.Name(),
                                            ": give its agent the name of its host: "
                                            "it is called ",
                                            answer->node)});
  for (const std::string& lack : answer->lacks)
    findings.push_back({Verdict::kBad, Text(name, ": ", lack)});
  const std::string lines = here == nullptr ? "" : DifferingLines(*here, answer->files);
  if (!lines.empty())
    findings.push_back(
        {Verdict::kBad, Text(name,
                             ": make the files alike on all hosts: its lines are not those "
                             "of this host (",
                             lines, ")")});
  if (findings.empty())
    findings.push_back(
        {Verdict::kGood, Text(name, " could take the group; it is in state ", answer->state)});
  return findings;
}

// What no agent can say alone.
std::vector<Finding> JudgeAll(const std::vector<Result<AgentAnswer>>& answers) {
  std::vector<Finding> findings;
  std::set<std::string> groups, nodes;
  size_t able = 0, primaries = 0, said = 0;
  for (const Result<AgentAnswer>& each : answers) {
    if (!each.ok()) continue;
    ++said;
    able += each->able ? 1 : 0;
    primaries += each->primary ? 1 : 0;
    nodes.insert(each->node);
    if (!each->group.empty()) groups.insert(each->group);
  }
  if (groups.size() > 1)
    findings.push_back({Verdict::kBad,
                        "start all agents anew, with the same group: they look at "
                        "different ones"});
  if (nodes.size() < said)
    findings.push_back({Verdict::kBad, "give each agent a name of its own (--node): two have one"});
  if (primaries == 0)
    findings.push_back({Verdict::kBad,
                        "look at the agents' logs: none says that its service "
                        "serves"});
  if (primaries > 1)
    findings.push_back({Verdict::kBad, "look at the agents' clocks: two say that they serve"});
  if (able < 2)
    findings.push_back({Verdict::kBad, Text("mend what is said above: ", able,
                                            " nodes could serve, and failover needs another one")});
  return findings;
}

// What the replicas say.
std::vector<Finding> JudgeOrders(const Where& where) {
  Result<AgentOrders> orders = AgentOrders::Create(where);
  const Status seen = orders.ok() ? orders->Look() : orders.status();
  if (!seen.ok()) return {{Verdict::kBad, seen.message()}};
  std::vector<Finding> findings;
  size_t alike = 0;
  const Directive told = orders->Told(&alike);
  if (told.paused)
    findings.push_back({Verdict::kBad,
                        "hyperloopctl agent resume: the agents are paused, and "
                        "nothing fails over"});
  if (alike < orders->Majority())
    findings.push_back(
        {Verdict::kBad, Text("repeat the last command that was given to the agents: "
                             "only ",
                             alike, " of ", orders->replicas().size(), " replicas tell the same")});
  for (const std::string& each : orders->replicas())
    if (const Status tells = orders->Tells(each, told); !tells.ok())
      findings.push_back({Verdict::kNote, tells.message()});
  if (findings.empty())
    findings.push_back({Verdict::kGood, Text("all replicas tell the agents the same; ",
                                             OwnerSentence(orders->Owner()))});
  return findings;
}

int CheckAgents(CheckArguments arguments) {
  const std::string& group = arguments.places.group;
  const Result<std::vector<AgentPlace>> agents = AgentsOf(arguments.places);
  if (!agents.ok()) return Fail(agents.status());
  const std::string folder = identity::NodeFolder();
  std::vector<Finding> findings;
  std::optional<FileDigests> here;
  if (!group.empty()) {
    findings = NodeFiles(folder);
    Result<FileDigests> digests = DigestFiles(folder, group);
    if (digests.ok()) here = *std::move(digests);
    if (arguments.where.uri.empty()) arguments.where.uri = "hyperloop:///" + group;
  }
  if (!arguments.where.uri.empty() || !arguments.where.directory.empty())
    std::ranges::move(JudgeOrders(arguments.where), std::back_inserter(findings));
  const auto answers = AtOnce(agents->size(), [&](size_t i) { return AskAgent((*agents)[i]); });
  for (size_t i = 0; i < answers.size(); ++i)
    std::ranges::move(JudgeAgent((*agents)[i], answers[i], arguments, here ? &*here : nullptr),
                      std::back_inserter(findings));
  std::ranges::move(JudgeAll(answers), std::back_inserter(findings));
  return ShowFindings(findings) ? kExitOk : kExitFailure;
}

}  // namespace

void AddAgentCheck(CLI::App& agent, Action* chosen) {
  const auto arguments = std::make_shared<CheckArguments>();
  CLI::App* const check = agent.add_subcommand(
      "check",
      "say whether the service would fail over now, for every day: whether the agents answer and "
      "are told the same, the files of all hosts are alike, and each node has what it needs to "
      "take the group; exit status 1 if something is missing, which is named with what mends it");
  AddAgentPlaces(check, &arguments->places);
  CLI::Option_group* const where =
      AddWhere(check, &arguments->where, "URI of the group. Default: that of --group");
  where->require_option(0, 1);
  check->callback([=] { *chosen = [=] { return CheckAgents(*arguments); }; });
}

}  // namespace hyperloop::ctl
