// hyperloopctl agent history: what the agents of a group decided, and why.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/printable.h"
#include "ctl/agent_history.h"
#include "ctl/agents.h"
#include "ctl/command.h"
#include "ctl/http_get.h"
#include "hyperloop/core/text.h"
#include "options/node_group.h"
#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

constexpr size_t kMostHistory = 4 << 20;  // bytes of a file, from its end
constexpr std::chrono::seconds kHistoryPatience{5};
constexpr size_t kMostShownWord = 64;

struct HistoryArguments {
  AgentPlaces places;
  std::vector<std::string> files;
  uint32_t last = 100;
  bool json = false;
};

// The lines of one place, or why there are none.
struct HistorySource {
  std::string name;
  Result<std::string> text;
};

// A file, with the older one that is beside it.
HistorySource ReadBoth(const std::string& path) {
  Result<std::string> newer = ReadHistoryFile(path, kMostHistory);
  if (!newer.ok()) return {path, std::move(newer)};
  const Result<std::string> older = ReadHistoryFile(OlderHistory(path), kMostHistory);
  return {path, (older.ok() ? *older + "\n" : "") + *newer};
}

HistorySource AskHistory(const AgentPlace& agent) {
  const auto page = [&]() -> Result<std::string> {
    HL_ASSIGN_OR_RETURN(HttpPage answer,
                        HttpGet(agent.address, "/history", kHistoryPatience, kMostHistory));
    if (answer.status == 404)
      return NotSupported(
          Text("install this release there: the agent at ", agent.address, " has no history"));
    if (answer.status != 200)
      return Unavailable(Text("the agent at ", agent.address, " answers with ", answer.status));
    return std::move(answer.body);
  }();
  return {agent.Name(), page};
}

void PrintEvent(const AgentEvent& event, bool json) {
  if (json) {
    std::printf("%s", FormatAgentEvent(event).c_str());
    return;
  }
  std::printf(
      "%s  %s  epoch %llu  %s  %s: %s\n", event.time.c_str(),
      Printable(event.node, kMostShownWord).c_str(), static_cast<unsigned long long>(event.epoch),
      Printable(event.state, kMostShownWord).c_str(),
      Printable(event.event, kMostShownWord).c_str(), Printable(event.why, kMostEventText).c_str());
}

int ShowHistory(const HistoryArguments& arguments) {
  std::vector<HistorySource> sources;
  std::vector<AgentPlace> agents;
  if (arguments.files.empty() || !arguments.places.group.empty() ||
      !arguments.places.given.empty()) {
    Result<std::vector<AgentPlace>> found = AgentsOf(arguments.places);
    if (!found.ok()) return Fail(found.status());
    agents = *std::move(found);
  }
  for (const std::string& file : arguments.files) sources.push_back(ReadBoth(file));
  // The file of this host's agent has more than its page.
  if (!arguments.places.group.empty()) {
    const auto group = ReadNodeGroup(arguments.places.group);
    if (group.ok()) {
      HistorySource own = ReadBoth(group->database + ".history");
      if (own.text.ok()) sources.push_back(std::move(own));
    }
  }
  std::ranges::move(AtOnce(agents.size(), [&](size_t i) { return AskHistory(agents[i]); }),
                    std::back_inserter(sources));
  std::vector<AgentEvent> events;
  size_t read = 0;
  for (const HistorySource& source : sources) {
    if (!source.text.ok()) {
      std::fprintf(stderr, "hyperloopctl: not %s: %s\n", source.name.c_str(),
                   Printable(source.text.status().message(), kMostEventText).c_str());
      continue;
    }
    ++read;
    size_t bad = 0;
    std::ranges::move(ParseAgentEvents(*source.text, &bad), std::back_inserter(events));
    if (bad != 0)
      std::fprintf(stderr, "hyperloopctl: %s: %zu lines are left out: they are no events\n",
                   source.name.c_str(), bad);
  }
  events = MergeAgentEvents(std::move(events));
  const size_t shown = std::min<size_t>(arguments.last, events.size());
  for (size_t i = events.size() - shown; i < events.size(); ++i)
    PrintEvent(events[i], arguments.json);
  return read == 0 ? kExitFailure : kExitOk;
}

}  // namespace

void AddAgentHistory(CLI::App& agent, Action* chosen) {
  const auto arguments = std::make_shared<HistoryArguments>();
  CLI::App* const history = agent.add_subcommand(
      "history",
      "show what the agents of a group decided, when and why, in the order of their clocks: this "
      "host's from its file, those of the others by HTTP, the newest of each");
  AddAgentPlaces(history, &arguments->places);
  history
      ->add_option("--file", arguments->files,
                   "an agent's --history, as of a host that is lost. May be repeated")
      ->type_name("FILE");
  history->add_option("--last", arguments->last, "how many events to show, the newest")
      ->check(CLI::Range(1u, 1'000'000u))
      ->type_name("N")
      ->capture_default_str();
  history->add_flag("--json", arguments->json, "as lines of JSON");
  history->callback([=] { *chosen = [=] { return ShowHistory(*arguments); }; });
}

}  // namespace hyperloop::ctl
