// hyperloopctl counters
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "ctl/command.h"
#include "ctl/nodes.h"

namespace hyperloop::ctl {
namespace {

using HostCounters = std::pair<std::string, rnic::Counters>;

void PrintTable(const std::vector<HostCounters>& hosts) {
  std::set<std::string> names;
  std::printf("%-26s", "counter");
  for (const auto& [host, counters] : hosts) {
    std::printf(" %15s", host.c_str());
    for (const auto& [name, value] : counters) names.insert(name);
  }
  std::printf("\n");
  for (const std::string& name : names) {
    std::printf("%-26s", name.c_str());
    for (const auto& [host, counters] : hosts) {
      const auto found = counters.find(name);
      std::printf(" %15s", found == counters.end() ? "-" : std::to_string(found->second).c_str());
    }
    std::printf("\n");
  }
}

struct CountersOptions {
  Where where;
  bool as_json = false;
  std::string host;
  std::string name;
};

// One value on a line of its own, for scripts.
int PrintOne(const Nodes& nodes, const CountersOptions& options) {
  const Result<rnic::Counters> counters = nodes.CountersOf(options.host);
  if (!counters.ok()) return Fail(counters.status());
  const auto found = counters->find(options.name);
  if (found == counters->end()) {
    return Fail(InvalidArgument("no counter '" + options.name +
                                "'; hyperloopctl counters without --name lists them"));
  }
  std::printf("%llu\n", static_cast<unsigned long long>(found->second));
  return kExitOk;
}

int Run(const CountersOptions& options) {
  Result<Nodes> nodes = Nodes::Find(options.where);
  if (!nodes.ok()) return Fail(nodes.status());
  if (!options.name.empty()) return PrintOne(*nodes, options);
  std::vector<std::string> names{"primary"};
  for (const NodePlace& place : nodes->replicas())
    if (place.silent.ok()) names.push_back(place.host);
  std::vector<HostCounters> hosts;
  for (const std::string& name : names) {
    Result<rnic::Counters> counters = nodes->CountersOf(name);
    if (!counters.ok()) return Fail(counters.status());
    std::erase_if(*counters, [](const auto& entry) { return entry.first.starts_with("qp."); });
    hosts.emplace_back(name, std::move(*counters));
  }
  if (options.as_json) {
    nlohmann::ordered_json json;
    for (const auto& [host, counters] : hosts) json[host] = counters;
    std::printf("%s\n", json.dump(2).c_str());
  } else {
    PrintTable(hosts);
  }
  return kExitOk;
}

}  // namespace

void AddCounters(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<CountersOptions>();
  CLI::App* counters = app.add_subcommand(
      "counters", "show what the RNIC of each emulated host has counted since the daemon started");
  AddWhere(counters, &options->where);
  counters->add_flag("--json", options->as_json, "as one JSON object, by host");
  auto* host = counters->add_option("--host", options->host, "with --name: primary, replica0, …")
                   ->type_name("HOST");
  auto* name = counters->add_option("--name", options->name, "print this counter of --host only")
                   ->type_name("NAME");
  host->needs(name);
  name->needs(host);
  counters->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
