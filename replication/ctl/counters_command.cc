// hyperloopctl counters
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "ctl/command.h"
#include "ctl/nodes.h"

namespace hyperloop::ctl {
namespace {

// Which RNIC has counted for which hosts.
void PrintAsked(const std::vector<HostCounters>& all) {
  std::map<std::string, std::string> asked;
  for (const HostCounters& one : all) asked[one.rnic] += " " + one.host;
  for (const auto& [rnic, hosts] : asked) std::printf("%s:%s\n", rnic.c_str(), hosts.c_str());
}

void PrintTable(const std::vector<HostCounters>& all) {
  std::set<std::string> names;
  std::printf("%-26s", "counter");
  for (const HostCounters& one : all) {
    std::printf(" %15s", one.host.c_str());
    for (const auto& [name, value] : one.counters) names.insert(name);
  }
  std::printf("\n");
  for (const std::string& name : names) {
    std::printf("%-26s", name.c_str());
    for (const HostCounters& one : all) {
      const auto found = one.counters.find(name);
      std::printf(" %15s",
                  found == one.counters.end() ? "-" : std::to_string(found->second).c_str());
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
  const Result<HostCounters> asked = nodes.CountersOf(options.host);
  if (!asked.ok()) return Fail(asked.status());
  const auto found = asked->counters.find(options.name);
  if (found == asked->counters.end()) {
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
  std::vector<HostCounters> all;
  std::vector<Status> strangers;
  for (const std::string& name : nodes->CountingHosts()) {
    Result<HostCounters> one = nodes->CountersOf(name);
    if (one.status().code() == Code::kNotFound) {
      strangers.push_back(one.status());
      continue;
    }
    if (!one.ok()) return Fail(one.status());
    std::erase_if(one->counters, [](const auto& entry) { return entry.first.starts_with("qp."); });
    all.push_back(*std::move(one));
  }
  if (all.empty()) return Fail(strangers.front());
  if (options.as_json) {
    nlohmann::ordered_json json;
    for (const HostCounters& one : all) json[one.host] = one.counters;
    using Handler = nlohmann::ordered_json::error_handler_t;
    std::printf("%s\n", json.dump(2, ' ', false, Handler::replace).c_str());
  } else {
    PrintAsked(all);
    for (const Status& stranger : strangers) std::printf("%s\n", stranger.message().c_str());
    PrintTable(all);
  }
  return kExitOk;
}

}  // namespace

void AddCounters(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<CountersOptions>();
  CLI::App* counters = app.add_subcommand("counters",
                                          "show what the RNIC of each emulated host has counted "
                                          "since its daemon started, also for hosts "
                                          "that are gone");
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
