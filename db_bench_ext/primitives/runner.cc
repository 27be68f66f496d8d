#include "primitives/runner.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "hyperloop/core/softrnic.h"
#include "hyperloop/core/verbs.h"
#include "primitives/append_workload.h"
#include "primitives/bare_tcp.h"
#include "primitives/ping_pong.h"
#include "primitives/workload.h"

namespace hyperloop::bench {
namespace {

// Half of the free memory, because pools lie in /dev/shm, which is memory.
uint64_t MemoryToUse() {
  struct statvfs space {};
  uint64_t free = UINT64_MAX;
  if (::statvfs("/dev/shm", &space) == 0) {
    free = static_cast<uint64_t>(space.f_bavail) * space.f_frsize;
  }
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (uint64_t kib = 0; file >> name >> kib;) {
    if (name == "MemAvailable:") free = std::min(free, kib << 10);
    std::getline(file, unit);
  }
  return free / 2;
}

std::string Describe(const Case& load, uint32_t replicas) {
  std::string text(PrimitiveName(load.primitive));
  if (Sized(load.primitive)) text += " " + std::to_string(load.size) + " B";
  return text + " window " + std::to_string(load.window) + " replicas " + std::to_string(replicas);
}
// A message of the operation's bytes, for comparison.
size_t MessageBytes(const Case& load) {
  constexpr uint64_t kLeast = 64;
  return Sized(load.primitive) ? std::max<uint64_t>(load.size, kLeast) : kLeast;
}
std::string Describe(const RawCase& load) {
  return "verb " + std::string(VerbName(load.verb)) + " " + std::to_string(load.size) + " B";
}

class Runner {
 public:
  Runner(const Plan& plan, const RunOptions& options, const std::atomic<bool>& interrupted)
      : plan_(plan), options_(options), interrupted_(interrupted), total_(plan.cases()) {}

  Status Run() {
    if (!options_.json && !plan_.groups.empty()) Print(TableHead(options_.hosts_apart));
    for (const GroupPlan& group : plan_.groups) HL_RETURN_IF_ERROR(RunGroup(group));
    if (plan_.raw.empty()) return Status::Ok();
    if (!options_.json) Print(RawTableHead());
    return options_.provider == "verbs" ? RunRawOnDevice() : RunRawOnDaemon();
  }
  // Removes the line of Show from the terminal.
  void End() const {
    if (on_terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  // --- groups

  Status RunGroup(const GroupPlan& group) {
    const std::vector<Case> cases = options_.leave_out ? ThatFit(group) : group.cases;
    if (cases.empty()) return Status::Ok();
    TargetOptions target_options;
    target_options.uri = options_.uri;
    target_options.datapath = group.datapath;
    target_options.window = cases.front().window;
    target_options.wait = cases.front().wait;
    target_options.cluster = {group.replicas,
                              options_.region_size != 0 ? options_.region_size : RegionFor(cases),
                              options_.places, options_.hosts_apart, options_.netem};
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<Target> target, Target::Open(target_options));
    for (const Case& load : cases) {
      if (interrupted_) return Aborted("interrupted");
      Begin(Describe(load, target->replicas()));
      Result<CaseReport> report = RunCase(*target, load);
      if (!report.ok()) return report.status().WithContext(current_);
      End();
      Print(options_.json ? ToJson(*report) : TableLine(*report));
    }
    return Status::Ok();
  }

  std::vector<Case> ThatFit(const GroupPlan& group) {
    const uint64_t most = MemoryToUse();
    std::vector<Case> fit;
    for (const Case& load : group.cases) {
      const uint64_t needed = (group.replicas + 1) * RegionFor({load});
      if (needed <= most) {
        fit.push_back(load);
        continue;
      }
      Begin(Describe(load, group.replicas));
      End();
      std::fprintf(stderr, "left out: %s needs %llu MiB of memory, %llu MiB may be used\n",
                   current_.c_str(), static_cast<unsigned long long>(needed >> 20),
                   static_cast<unsigned long long>(most >> 20));
    }
    return fit;
  }

  Result<CaseReport> RunCase(Target& target, const Case& load) {
    CaseReport report;
    report.load = load;
    report.replicas = target.replicas();
    report.datapath = DatapathName(target.datapath());
    if (options_.hosts_apart) {
      constexpr uint64_t kMessages = 2000;
      const ClusterInfo& cluster = target.meters().cluster()->info();
      const size_t bytes = MessageBytes(load);
      HL_ASSIGN_OR_RETURN(const LatencyHistogram chain,
                          TcpChain(cluster, bytes, kMessages, interrupted_));
      HL_ASSIGN_OR_RETURN(const LatencyHistogram fanout,
                          TcpFanout(cluster, bytes, kMessages, interrupted_));
      report.around.tcp_chain_p50_ns = chain.Percentile(50);
      report.around.tcp_fanout_p50_ns = fanout.Percentile(50);
    }
    if (load.primitive == Primitive::kAppend) {
      HL_ASSIGN_OR_RETURN(Store* const store, target.TakeStore(load.wait));
      AppendWorkload workload(*store, load, interrupted_, ShowShare());
      HL_RETURN_IF_ERROR(Measure(workload, target.meters(), &report.measured, &report.around));
      HL_RETURN_IF_ERROR(workload.Finish());
    } else {
      HL_ASSIGN_OR_RETURN(Group* const group, target.TakeGroup(load.window, load.wait));
      Workload workload(*group, target.scratch(), load, interrupted_, ShowShare());
      HL_RETURN_IF_ERROR(Measure(workload, target.meters(), &report.measured, &report.around));
    }
    if (report.around.cpu.noise) {
      report.around.reasons = UnfairBecause(report.datapath, report.around.cpu,
                                            options_.places.noise_workers, report.measured.seconds);
    }
    return report;
  }

  // --- raw verbs

  Status RunRawOnDaemon() {
    ClusterWanted wanted;  // only its daemon is used; a cluster has at least one replica
    wanted.replicas = 1;
    wanted.region_size = 64ull << 20;
    wanted.places = options_.places;
    HL_ASSIGN_OR_RETURN(const std::unique_ptr<OwnCluster> cluster, OwnCluster::Start(wanted));
    HL_ASSIGN_OR_RETURN(Meters meters, Meters::Open({{"client", cluster->info().socket},
                                                     {"server", cluster->info().socket}}));
    meters.Watch(*cluster);
    return RunRaw(meters.device(0), meters.device(1), meters);
  }

  Status RunRawOnDevice() {
    HL_ASSIGN_OR_RETURN(const auto client, verbs::OpenDevice({.device = options_.device}));
    HL_ASSIGN_OR_RETURN(const auto server, verbs::OpenDevice({.device = options_.device}));
    return RunRaw(*client, *server, Meters());
  }

  Status RunRaw(rnic::Device& client, rnic::Device& server, const Meters& meters) {
    std::unique_ptr<ProcessorAffinity> affinity;
    if (options_.places.primary >= 0) {
      HL_ASSIGN_OR_RETURN(affinity, ProcessorAffinity::To(options_.places.primary));
    }
    for (const RawCase& load : plan_.raw) {
      Begin(Describe(load));
      RawReport report;
      report.load = load;
      Result<std::unique_ptr<RawVerbs>> verbs =
          RawVerbs::Create(client, server, load, interrupted_, ShowShare());
      if (!verbs.ok()) return verbs.status().WithContext(current_);
      Status measured = Measure(**verbs, meters, &report.measured, &report.around);
      if (!measured.ok()) return measured.WithContext(current_);
      End();
      Print(options_.json ? ToJson(report) : TableLine(report));
    }
    return Status::Ok();
  }

  // --- both

  // Warms up, measures, and reads the meters around it.
  template <class Load>
  Status Measure(Load& load, const Meters& meters, Measurement* measured, Surroundings* around) {
    around->provider = options_.provider;
    around->daemon_pid = meters.daemon_pid();
    const bool noisy = options_.places.noise_workers > 0;
    around->load = noisy ? "noise" : "idle";
    if (noisy) around->shared_cpu = options_.places.daemon;
    if (meters.daemon_pid() != 0) {
      HL_ASSIGN_OR_RETURN(const LatencyHistogram ping,
                          PingPong(meters.device(0), noisy ? 1000 : 20000, interrupted_));
      around->ping_pong_p50_ns = ping.Percentile(50);
    }
    HL_RETURN_IF_ERROR(load.Prepare());
    HL_ASSIGN_OR_RETURN(const std::vector<HostWork> work_before, meters.Counters());
    HL_ASSIGN_OR_RETURN(const CpuTimes before, meters.Times());
    HL_ASSIGN_OR_RETURN(*measured, load.Run());
    HL_ASSIGN_OR_RETURN(const CpuTimes after, meters.Times());
    HL_ASSIGN_OR_RETURN(const std::vector<HostWork> work_after, meters.Counters());
    around->cpu = Difference(before, after);
    for (size_t i = 0; i < work_before.size(); ++i) {
      around->hosts.push_back(
          {work_before[i].host, Difference(work_before[i].difference, work_after[i].difference)});
    }
    return Status::Ok();
  }

  // --- progress: overwritten in place on a terminal, silent elsewhere

  void Begin(std::string description) {
    current_ = std::move(description);
    ++number_;
    Show(0);
  }
  Progress ShowShare() {
    return [this](double share) { Show(share); };
  }
  void Show(double share) const {
    if (!on_terminal_) return;
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %s: %3.0f %%", number_, total_, current_.c_str(),
                 share * 100);
  }
  static void Print(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  const Plan& plan_;
  const RunOptions& options_;
  const std::atomic<bool>& interrupted_;
  const size_t total_;
  const bool on_terminal_ = ::isatty(STDERR_FILENO) != 0;
  size_t number_ = 0;
  std::string current_;
};

}  // namespace

Status RunPlan(const Plan& plan, const RunOptions& options, const std::atomic<bool>& interrupted) {
  Runner runner(plan, options, interrupted);
  Status status = runner.Run();
  runner.End();
  return status;
}

}  // namespace hyperloop::bench
