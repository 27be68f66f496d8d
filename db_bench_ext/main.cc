// hyperloop-bench: latency and throughput of the group primitives and of raw verbs.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "affinity.h"
#include "plan.h"
#include "runner.h"

namespace hyperloop::bench {
namespace {

std::atomic<bool> g_interrupted{false};

struct Arguments {
  Choices choices;
  RunOptions run;
  std::vector<std::string> sizes{"1024"};
  std::vector<std::string> inlined{"no"}, chained{"no"};
  std::vector<std::string> suites;
  bool suite = false;
  int64_t warmup = -1;
  std::string region_size = "auto";
  int cpu = -1, daemon_cpu = -1, replica_cpu = -1;
  int daemon_spin_us = -1;
  bool pin = true;
  bool use_notify = false;
  uint32_t noise = 0;  // workers
};

// Ctrl-C ends the run in order: cluster and noise go with the objects that hold them.
void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted.store(true, std::memory_order_relaxed); };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

Result<uint64_t> ParseSize(const std::string& text) {
  size_t used = 0;
  uint64_t value = 0;
  if (!text.empty() && text[0] >= '0' && text[0] <= '9' && text.size() < 16) {
    value = std::stoull(text, &used);
  }
  const std::string suffix = text.substr(used);
  const char* const units = "KMG";
  if (used != 0 && suffix.empty()) return value;
  for (unsigned i = 0; used != 0 && i < 3; ++i) {
    if (suffix == std::string(1, units[i])) return value << (10 * (i + 1));
  }
  return InvalidArgument("'" + text + "' is no size: give bytes, or a number with K, M or G");
}

std::vector<bool> Booleans(const std::vector<std::string>& words) {
  std::vector<bool> values;
  for (const std::string& word : words) values.push_back(word == "yes");
  return values;
}

Result<Places> ChoosePlaces(const Arguments& arguments) {
  const std::vector<int> processors = AllowedProcessors();
  Places places;
  if (arguments.noise > 0) {
    HL_ASSIGN_OR_RETURN(places, NoisyPlaces(processors, arguments.noise));
    return places;
  }
  if (arguments.pin) places = IdlePlaces(processors);
  if (arguments.cpu >= 0) {
    places.primary = arguments.cpu;
    // The daemon keeps off, where there is another.
    if (places.daemon == arguments.cpu) places.daemon = processors[0];
  }
  if (arguments.daemon_cpu >= 0) places.daemon = arguments.daemon_cpu;
  if (arguments.replica_cpu >= 0) places.replicas = arguments.replica_cpu;
  places.daemon_spin_us = arguments.daemon_spin_us;
  return places;
}

Result<Plan> ChoosePlan(Arguments* arguments) {
  Choices& choices = arguments->choices;
  choices.sizes.clear();
  for (const std::string& size : arguments->sizes) {
    HL_ASSIGN_OR_RETURN(choices.sizes.emplace_back(), ParseSize(size));
  }
  choices.inlined = Booleans(arguments->inlined);
  choices.chained = Booleans(arguments->chained);
  if (arguments->warmup >= 0) choices.warmup = static_cast<uint64_t>(arguments->warmup);
  if (arguments->use_notify) choices.wait = WaitMode::kEvent;
  if (!arguments->suite) return Combine(choices);
  constexpr double kSuiteSeconds = 1;
  if (choices.max_seconds == 0) choices.max_seconds = kSuiteSeconds;
  std::erase(arguments->suites, "");  // what CLI11 makes of --suite without a name
  if (arguments->suites.empty()) arguments->suites = {"all"};
  return Suite(arguments->suites, choices);
}

Status Run(Arguments* arguments) {
  HL_ASSIGN_OR_RETURN(const Plan plan, ChoosePlan(arguments));
  HL_ASSIGN_OR_RETURN(arguments->run.places, ChoosePlaces(*arguments));
  if (arguments->region_size != "auto") {
    HL_ASSIGN_OR_RETURN(arguments->run.region_size, ParseSize(arguments->region_size));
  }
  arguments->run.leave_out = arguments->suite;
  return RunPlan(plan, arguments->run, g_interrupted);
}

int Main(Arguments arguments) {
  WatchSignals();
  const Status status = Run(&arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-bench: %s\n", status.message().c_str());
  if (g_interrupted.load()) return 130;
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

// --- the command line

void AddCases(CLI::App& app, Arguments* a) {
  Choices& c = a->choices;
  const auto yes_or_no = CLI::IsMember({"no", "yes"});
  app.add_option("--primitive", c.primitives,
                 "list of gwrite, gcas, gmemcpy, gflush, append (to a log file, through the "
                 "journal); or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--flush", c.flush, "gwrite: durable on every replica before the acknowledgement");
  app.add_option("--size", a->sizes, "list of bytes an operation (K, M)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--window", c.windows, "list of operations in flight")
      ->delimiter(',')
      ->check(CLI::Range(1u, hyperloop::kMaxWindow))
      ->capture_default_str();
  app.add_option("--rate", c.rates,
                 "list of operations a second, open loop: latency counts from the intended start; "
                 "0: closed loop")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e8))
      ->capture_default_str();
  app.add_option("--replicas", c.replicas, "list of group sizes of the own cluster")
      ->delimiter(',')
      ->check(CLI::Range(1u, hyperloop::kMaxGroupSize))
      ->capture_default_str();
  app.add_option("--datapath", c.datapaths,
                 "list of offload, fanout, cpu-polling, cpu-event; default: the URI's, or offload")
      ->delimiter(',')
      ->check(CLI::IsMember({"offload", "fanout", "cpu-polling", "cpu-event"}));
  app.add_option("--raw", c.raw,
                 "instead of primitives round trips of verbs between two hosts: list of write, "
                 "send, write-imm, read, read-memory; or all")
      ->delimiter(',');
  app.add_option("--inline", a->inlined, "--raw: list of no, yes: data travels in the request")
      ->delimiter(',')
      ->check(yes_or_no)
      ->capture_default_str();
  app.add_option("--signal-every", c.signal_every,
                 "--raw: list; one request in that many makes a completion at its sender")
      ->delimiter(',')
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  app.add_option("--requests", c.requests, "--raw: list of requests each way of a round trip")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--chained", a->chained,
                 "--raw: list of no, yes: a way's requests are posted in one call, one doorbell")
      ->delimiter(',')
      ->check(yes_or_no)
      ->capture_default_str();
  app.add_option("--suite", a->suites, "instead of all lists: list of " + SuiteNames())
      ->delimiter(',')
      ->expected(0, -1);
}

void AddMeasuring(CLI::App& app, Arguments* a) {
  Choices& c = a->choices;
  app.add_option("--number", c.number, "operations measured a case")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--warmup", a->warmup,
                 "operations before; default: a tenth of --number, at most 10000");
  app.add_option("--max-seconds", c.max_seconds,
                 "a case ends then, even before --number; 0: it does not (--suite: 1)")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_flag("--use-notify", a->use_notify, "sleep until completion events instead of polling");
  app.add_flag("--noise{10}", a->noise,
               "under load: stress-ng with that many workers, the RNIC daemon and all replicas on "
               "one processor, the measuring thread alone on another")
      ->check(CLI::Range(1u, 1000u));
  app.add_flag("--json", a->run.json, "one JSON object a case instead of a table");
}

void AddPlaces(CLI::App& app, Arguments* a) {
  app.add_option("--uri", a->run.uri,
                 "an existing group; it must hold no files and have no primary");
  app.add_option("--region-size", a->region_size, "of the own cluster; auto: what the cases need")
      ->capture_default_str();
  app.add_option("--cpu", a->cpu, "processor of the measuring thread; default: the first");
  app.add_option("--daemon-cpu", a->daemon_cpu,
                 "processor of the own cluster's RNIC daemon; default: another");
  app.add_option("--replica-cpu", a->replica_cpu,
                 "processor of the own cluster's replicas; default: not bound");
  app.add_option("--daemon-spin-us", a->daemon_spin_us,
                 "how long the own cluster's idle RNIC daemon spins");
  app.add_flag("--pin,!--no-pin", a->pin, "give each its processor (default: yes)");
  app.add_option("--provider", a->run.provider, "--raw: softrnic or verbs")
      ->check(CLI::IsMember({"softrnic", "verbs"}))
      ->capture_default_str();
  app.add_option("--device", a->run.device,
                 "--provider=verbs: NAME or NAME:PORT; default: the first active");
}

// Options that have no meaning beside each other are refused, not ignored.
void AddRules(CLI::App& app) {
  const auto exclude = [&](const char* one, std::initializer_list<const char*> others) {
    for (const char* other : others) app.get_option(one)->excludes(app.get_option(other));
  };
  exclude("--raw", {"--uri", "--primitive", "--flush", "--window", "--rate", "--replicas",
                    "--datapath", "--region-size"});
  exclude("--suite", {"--uri", "--primitive", "--flush", "--size", "--window", "--rate",
                      "--replicas", "--datapath", "--raw", "--use-notify", "--region-size"});
  exclude("--uri", {"--replicas", "--region-size", "--daemon-cpu", "--replica-cpu",
                    "--daemon-spin-us", "--noise"});
  exclude("--noise",
          {"--cpu", "--daemon-cpu", "--replica-cpu", "--daemon-spin-us", "--pin", "--provider"});
  for (const char* name : {"--inline", "--signal-every", "--requests", "--chained", "--provider"}) {
    app.get_option(name)->needs(app.get_option("--raw"));
  }
  app.get_option("--device")->needs(app.get_option("--provider"));
}

}  // namespace
}  // namespace hyperloop::bench

int main(int argc, char** argv) {
  hyperloop::bench::Arguments arguments;
  CLI::App app(
      "Latency and throughput of the group primitives and of raw verbs. Without --uri it starts an "
      "emulated cluster of its own and ends it again. Lists: every combination is a case.",
      "hyperloop-bench");
  hyperloop::bench::AddCases(app, &arguments);
  hyperloop::bench::AddMeasuring(app, &arguments);
  hyperloop::bench::AddPlaces(app, &arguments);
  hyperloop::bench::AddRules(app);
  app.footer(
      "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is wrong; 130 "
      "interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  arguments.suite = app.count("--suite") != 0;
  return hyperloop::bench::Main(std::move(arguments));
}
