// hyperloop-bench: latency and throughput of the group primitives.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "ping_pong.h"
#include "report.h"
#include "target.h"
#include "workload.h"

namespace hyperloop::bench {
namespace {

std::atomic<bool> g_interrupted{false};

struct Arguments {
  std::string uri;
  std::vector<std::string> primitives{"gwrite"};
  bool flush = false;
  std::vector<std::string> sizes{"1024"};
  std::vector<uint32_t> windows{1};
  std::vector<double> rates{0};
  std::vector<uint32_t> replicas{3};
  std::vector<std::string> datapaths;  // empty: the URI's, or offload
  uint64_t number = 100000;
  int64_t warmup = -1;
  std::string region_size = "128M";
  int cpu = -1;
  int daemon_cpu = -1;
  int daemon_spin_us = -1;
  bool pin = true;
  bool json = false;
};

// Ctrl-C ends the run in order: the emulated cluster goes with the Target.
void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted.store(true, std::memory_order_relaxed); };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

// The processors that this process may use, in order.
std::vector<int> Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) processors.push_back(cpu);
  }
  return processors;
}

// The primary's thread and the RNIC daemon each get a processor, where there are two.
void ChoosePlaces(Arguments* arguments) {
  const std::vector<int> processors = Processors();
  if (!arguments->pin || processors.size() < 2) return;
  if (arguments->cpu < 0) arguments->cpu = processors[0];
  if (arguments->daemon_cpu < 0) {
    arguments->daemon_cpu = processors[0] == arguments->cpu ? processors[1] : processors[0];
  }
}
Status PinTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (::sched_setaffinity(0, sizeof set, &set) == 0) return Status::Ok();
  return FromErrno(errno, "pinning to processor " + std::to_string(cpu));
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

// Every combination of the lists, but those of sizes only where a primitive has one.
Result<std::vector<Case>> Cases(const Arguments& arguments) {
  std::vector<Case> cases;
  std::vector<std::string> names = arguments.primitives;
  if (std::find(names.begin(), names.end(), "all") != names.end()) {
    names = {"gwrite", "gcas", "gmemcpy", "gflush"};
  }
  for (const std::string& name : names) {
    Case load;
    HL_ASSIGN_OR_RETURN(load.primitive, ParsePrimitive(name));
    const bool sized = load.primitive == Primitive::kWrite || load.primitive == Primitive::kMemCopy;
    load.flush = arguments.flush;
    load.number = arguments.number;
    load.warmup = arguments.warmup >= 0 ? static_cast<uint64_t>(arguments.warmup)
                                        : std::min<uint64_t>(arguments.number / 10, 10000);
    for (const std::string& size : sized ? arguments.sizes : std::vector<std::string>{"8"}) {
      HL_ASSIGN_OR_RETURN(load.size, ParseSize(size));
      if (load.size == 0) return InvalidArgument("--size 0: an operation has at least 1 byte");
      for (const uint32_t window : arguments.windows) {
        for (const double rate : arguments.rates) {
          load.window = window;
          load.rate = rate;
          cases.push_back(load);
        }
      }
    }
  }
  return cases;
}

// Overwritten in place on a terminal; silent elsewhere.
void ShowProgress(const Case& load, double share) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s %llu B window %u: %3.0f %% ",
               std::string(PrimitiveName(load.primitive)).c_str(),
               static_cast<unsigned long long>(load.size), load.window, share * 100);
  if (share >= 1) std::fprintf(stderr, "\r\033[K");
}

Result<CaseReport> RunCase(Target& target, const Case& load) {
  CaseReport report;
  report.load = load;
  report.replicas = target.group().group_size();
  report.datapath = DatapathName(target.datapath());
  report.daemon_pid = target.daemon_pid();
  constexpr uint64_t kPings = 20000;
  HL_ASSIGN_OR_RETURN(const LatencyHistogram ping,
                      PingPong(target.device(), kPings, g_interrupted));
  report.ping_pong_p50_ns = ping.Percentile(50);
  Workload workload(target.group(), target.scratch(), load, g_interrupted,
                    [&load](double share) { ShowProgress(load, share); });
  HL_RETURN_IF_ERROR(workload.Prepare());
  HL_ASSIGN_OR_RETURN(const std::vector<HostWork> before, target.Counters());
  HL_ASSIGN_OR_RETURN(report.measured, workload.Run());
  HL_ASSIGN_OR_RETURN(const std::vector<HostWork> after, target.Counters());
  ShowProgress(load, 1);
  for (size_t i = 0; i < before.size(); ++i) {
    report.hosts.push_back({before[i].host, Difference(before[i].difference, after[i].difference)});
  }
  return report;
}

Status RunAll(const Arguments& arguments, const std::vector<Case>& cases) {
  TargetOptions options;
  options.uri = arguments.uri;
  HL_ASSIGN_OR_RETURN(options.region_size, ParseSize(arguments.region_size));
  options.daemon_cpu = arguments.daemon_cpu;
  options.daemon_spin_us = arguments.daemon_spin_us;
  options.window = *std::max_element(arguments.windows.begin(), arguments.windows.end());
  if (!arguments.json) std::printf("%s\n", TableHead().c_str());
  std::fflush(stdout);
  std::vector<std::optional<Datapath>> datapaths{std::nullopt};
  if (!arguments.datapaths.empty()) datapaths.clear();
  for (const std::string& name : arguments.datapaths) {
    HL_ASSIGN_OR_RETURN(const Datapath datapath, ParseDatapath(name));
    datapaths.emplace_back(datapath);
  }
  for (const uint32_t replicas : arguments.replicas) {
    for (const std::optional<Datapath> datapath : datapaths) {
      options.replicas = replicas;
      options.datapath = datapath;
      HL_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target, Target::Open(options));
      for (const Case& load : cases) {
        HL_ASSIGN_OR_RETURN(const CaseReport report, RunCase(*target, load));
        const std::string line = arguments.json ? ToJson(report) : TableLine(report);
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
      }
    }
  }
  return Status::Ok();
}

int Main(Arguments arguments) {
  WatchSignals();
  ChoosePlaces(&arguments);
  Status status;
  if (arguments.cpu >= 0) status = PinTo(arguments.cpu);
  const Result<std::vector<Case>> cases = Cases(arguments);
  if (status.ok()) status = cases.status();
  if (status.ok()) status = RunAll(arguments, *cases);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-bench: %s\n", status.message().c_str());
  if (g_interrupted.load()) return 130;
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::bench

int main(int argc, char** argv) {
  hyperloop::bench::Arguments arguments;
  CLI::App app(
      "Latency and throughput of the group primitives. Without --uri it starts an emulated cluster "
      "of its own and ends it "
      "again.",
      "hyperloop-bench");
  app.add_option("--uri", arguments.uri,
                 "an existing group; it must hold no files and have no primary");
  app.add_option("--primitive", arguments.primitives,
                 "list of gwrite, gcas, gmemcpy, gflush; or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--flush", arguments.flush,
               "gwrite: durable on every replica before the acknowledgement");
  app.add_option("--size", arguments.sizes, "list of bytes an operation (K, M)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--window", arguments.windows, "list of operations in flight")
      ->delimiter(',')
      ->check(CLI::Range(1u, hyperloop::kMaxWindow))
      ->capture_default_str();
  app.add_option("--rate", arguments.rates,
                 "list of operations a second, open loop: latency counts from the intended start; "
                 "0: closed loop")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e8))
      ->capture_default_str();
  auto* replicas =
      app.add_option("--replicas", arguments.replicas, "list of group sizes of the own cluster")
          ->delimiter(',')
          ->check(CLI::Range(1u, 8u))
          ->capture_default_str();
  app.get_option("--uri")->excludes(replicas);
  app.add_option("--datapath", arguments.datapaths,
                 "list of offload, fanout, cpu-polling, cpu-event; default: the URI's, or offload")
      ->delimiter(',')
      ->check(CLI::IsMember({"offload", "fanout", "cpu-polling", "cpu-event"}));
  app.add_option("--number", arguments.number, "operations measured a case")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--warmup", arguments.warmup,
                 "operations before; default: a tenth of --number, at most 10000");
  app.add_option("--region-size", arguments.region_size, "of the own cluster")
      ->capture_default_str();
  app.add_option("--cpu", arguments.cpu, "processor of the measuring thread; default: the first");
  app.add_option("--daemon-cpu", arguments.daemon_cpu,
                 "processor of the own cluster's RNIC daemon; default: another");
  app.add_option("--daemon-spin-us", arguments.daemon_spin_us,
                 "how long the own cluster's idle RNIC daemon spins");
  app.add_flag("--pin,!--no-pin", arguments.pin, "give each its processor (default: yes)");
  app.add_flag("--json", arguments.json, "one JSON object a case instead of a table");
  app.footer(
      "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is wrong; 130 "
      "interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return hyperloop::bench::Main(std::move(arguments));
}
