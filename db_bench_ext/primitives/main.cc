// hyperloop-bench: latency and throughput of the group primitives and of raw verbs.
#include <gflags/gflags.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "command_line/flags.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "hyperloop/replication/size.h"
#include "measuring/processor_affinity.h"
#include "primitives/plan.h"
#include "primitives/runner.h"

// --- cases: each combination of the lists' entries is one

DEFINE_string(primitive, "gwrite",
              "list of gwrite, gcas, gmemcpy, gflush, append (to a log file, through the journal); "
              "or all");
DEFINE_bool(flush, false, "gwrite: durable on every replica before the acknowledgement");
DEFINE_string(size, "1024", "list of bytes an operation, also with K, M or G (1K)");
DEFINE_string(window, "1", "list of operations in flight");
DEFINE_string(rate, "0",
              "list of operations a second, open loop: latency counts from the intended start; 0: "
              "closed loop");
DEFINE_string(replicas, "3", "list of group sizes of the own cluster, in replicas");
DEFINE_string(
    datapath, "",
    "list of auto, offload, fanout, cpu-polling, cpu-event; without it the URI's, or auto, "
    "whose choice is shown");
DEFINE_string(raw, "",
              "instead of primitives round trips of verbs between two hosts: list of write, send, "
              "write-imm, read, read-memory; or all");
DEFINE_string(inline, "no", "--raw: list of no, yes: data travels in the request");
DEFINE_string(signal_every, "1",
              "--raw: list; one request in that many makes a completion at its sender");
DEFINE_string(requests, "1", "--raw: list of requests each way of a round trip");
DEFINE_string(chained, "no",
              "--raw: list of no, yes: a way's requests are posted in one call, one doorbell");
DEFINE_string(suite, "",
              "instead of all lists: list of latency, windows, groups, append, datapaths, raw; or "
              "all");

// --- measuring

DEFINE_uint64(number, 100000, "operations measured a case");
DEFINE_int64(warmup, -1,
             "operations before those measured; -1: a tenth of --number, at most 10000");
DEFINE_double(max_seconds, 0,
              "seconds after which a case ends, even before --number; 0: it does not (--suite: 1)");
DEFINE_bool(use_notify, false, "sleep until completion events instead of polling");
DEFINE_uint32(noise, 0,
              "under load: stress-ng with that many workers, the RNIC daemon and all replicas on "
              "one processor, the measuring thread alone on another; 0: idle");
DEFINE_bool(json, false, "one JSON object a case instead of a table");

// --- places

DEFINE_string(uri, "", "an existing group; it must hold no files and have no primary");
DEFINE_string(dir, "", "the same as --uri, by the directory of its emulated cluster");
DEFINE_string(region_size, "auto",
              "bytes of the own cluster's regions, also with K, M or G; auto: what the cases need");
DEFINE_bool(
    hosts_apart, false,
    "give each replica of the own cluster an RNIC daemon and a network namespace of its own, "
    "and show beside each case how long a message of its size takes over bare TCP through "
    "the same nodes; needs root");
DEFINE_string(netem, "",
              "--hosts_apart: how what each node sends is shaped, in the words of tc-netem(8)");
DEFINE_int32(cpu, -1, "processor of the measuring thread; -1: the first");
DEFINE_int32(daemon_cpu, -1, "processor of the own cluster's RNIC daemon; -1: another");
DEFINE_int32(replica_cpu, -1, "processor of the own cluster's replicas; -1: not bound");
DEFINE_int32(daemon_spin_us, -1,
             "microseconds that the own cluster's idle RNIC daemon spins; -1: as many as it does "
             "by itself");
DEFINE_bool(pin, true, "give the measuring thread and the RNIC daemon a processor each");
DEFINE_string(provider, "softrnic", "--raw: softrnic or verbs");
DEFINE_string(device, "", "--provider=verbs: NAME or NAME:PORT; without it the first active");

namespace hyperloop::bench {
namespace {

constexpr char kUsage[] =
    "latency and throughput of the group primitives and of raw verbs.\n"
    "Without --uri or --dir it starts an emulated cluster of its own and ends it again. Lists\n"
    "(one,two) make every combination a case.\n"
    "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is\n"
    "wrong; 128 + N ended by signal N.";

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};  // that interrupted it

// Ctrl-C ends the run orderly: cluster and noise end with the objects that hold them.
void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    g_signal.store(signal, std::memory_order_relaxed);
    g_interrupted.store(true, std::memory_order_relaxed);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

Result<std::vector<bool>> YesOrNo(const char* flag, const std::string& list) {
  std::vector<bool> values;
  for (const std::string& word : SplitList(list)) {
    HL_RETURN_IF_ERROR(CheckWord(flag, word, {"no", "yes"}));
    values.push_back(word == "yes");
  }
  return values;
}

// Flags that have no meaning beside each other are refused, not ignored.
Status CheckCombination() {
  HL_RETURN_IF_ERROR(CheckApart("raw", {"uri", "dir", "primitive", "flush", "window", "rate",
                                        "replicas", "datapath", "region_size"}));
  HL_RETURN_IF_ERROR(
      CheckApart("suite", {"uri", "dir", "primitive", "flush", "size", "window", "rate", "replicas",
                           "datapath", "raw", "use_notify", "region_size"}));
  HL_RETURN_IF_ERROR(CheckApart("uri", {"dir"}));
  for (const char* group : {"uri", "dir"})
    HL_RETURN_IF_ERROR(CheckApart(
        group, {"replicas", "region_size", "daemon_cpu", "replica_cpu", "daemon_spin_us"}));
  if (FLAGS_noise > 0) {
    HL_RETURN_IF_ERROR(CheckApart("noise", {"uri", "dir", "cpu", "daemon_cpu", "replica_cpu",
                                            "daemon_spin_us", "pin", "provider"}));
  }
  HL_RETURN_IF_ERROR(
      CheckApart("hosts_apart", {"uri", "dir", "raw", "noise", "daemon_cpu", "pin", "provider"}));
  HL_RETURN_IF_ERROR(CheckNeeded("netem", "hosts_apart"));
  for (const char* flag : {"inline", "signal_every", "requests", "chained", "provider"}) {
    HL_RETURN_IF_ERROR(CheckNeeded(flag, "raw"));
  }
  return CheckNeeded("device", "provider");
}

Status CheckRanges() {
  HL_RETURN_IF_ERROR(CheckRange("number", FLAGS_number, uint64_t{1}, uint64_t{1} << 40));
  HL_RETURN_IF_ERROR(CheckRange("warmup", FLAGS_warmup, int64_t{-1}, int64_t{1} << 40));
  HL_RETURN_IF_ERROR(CheckRange("max_seconds", FLAGS_max_seconds, 0.0, 86400.0));
  HL_RETURN_IF_ERROR(CheckRange("noise", FLAGS_noise, 0u, 1000u));
  const int last_cpu = static_cast<int>(::sysconf(_SC_NPROCESSORS_CONF)) - 1;
  HL_RETURN_IF_ERROR(CheckRange("cpu", FLAGS_cpu, -1, last_cpu));
  HL_RETURN_IF_ERROR(CheckRange("daemon_cpu", FLAGS_daemon_cpu, -1, last_cpu));
  HL_RETURN_IF_ERROR(CheckRange("replica_cpu", FLAGS_replica_cpu, -1, last_cpu));
  HL_RETURN_IF_ERROR(CheckRange("daemon_spin_us", FLAGS_daemon_spin_us, -1, 1000000));
  return CheckWord("provider", FLAGS_provider, {"softrnic", "verbs"});
}

Status ReadLists(Choices* choices) {
  choices->primitives = SplitList(FLAGS_primitive);
  choices->sizes.clear();
  for (const std::string& size : SplitList(FLAGS_size)) {
    Result<uint64_t> bytes = ParseSize(size);
    if (!bytes.ok()) return bytes.status().WithContext("--size");
    HL_RETURN_IF_ERROR(CheckRange("size", *bytes, uint64_t{1}, kMaxRegionSize));
    choices->sizes.push_back(*bytes);
  }
  HL_ASSIGN_OR_RETURN(choices->windows, NumberList("window", FLAGS_window, 1u, kMaxWindow));
  HL_ASSIGN_OR_RETURN(choices->rates, NumberList("rate", FLAGS_rate, 0.0, 1e8));
  HL_ASSIGN_OR_RETURN(choices->replicas, NumberList("replicas", FLAGS_replicas, 1u, kMaxGroupSize));
  if (IsGiven("datapath")) choices->datapaths = SplitList(FLAGS_datapath);
  HL_RETURN_IF_ERROR(CheckWords("datapath", choices->datapaths,
                                {"auto", "offload", "fanout", "cpu-polling", "cpu-event"}));
  if (IsGiven("raw")) choices->raw = SplitList(FLAGS_raw);
  HL_ASSIGN_OR_RETURN(choices->inlined, YesOrNo("inline", FLAGS_inline));
  HL_ASSIGN_OR_RETURN(choices->signal_every,
                      NumberList("signal_every", FLAGS_signal_every, 1u, 4096u));
  HL_ASSIGN_OR_RETURN(choices->requests, NumberList("requests", FLAGS_requests, 1u, 1024u));
  HL_ASSIGN_OR_RETURN(choices->chained, YesOrNo("chained", FLAGS_chained));
  return Status::Ok();
}

Result<Plan> ChoosePlan() {
  Choices choices;
  HL_RETURN_IF_ERROR(ReadLists(&choices));
  choices.flush = FLAGS_flush;
  choices.number = FLAGS_number;
  if (FLAGS_warmup >= 0) choices.warmup = static_cast<uint64_t>(FLAGS_warmup);
  choices.max_seconds = FLAGS_max_seconds;
  if (FLAGS_use_notify) choices.wait = WaitMode::kEvent;
  if (!IsGiven("suite")) return Combine(choices);
  constexpr double kSuiteSeconds = 1;
  if (choices.max_seconds == 0) choices.max_seconds = kSuiteSeconds;
  return Suite(SplitList(FLAGS_suite), choices);
}

Result<Places> ChoosePlaces() {
  const std::vector<int> processors = AllowedProcessors();
  Places places;
  if (FLAGS_noise > 0) {
    HL_ASSIGN_OR_RETURN(places, NoisyPlaces(processors, FLAGS_noise));
    return places;
  }
  // The daemons of hosts apart share all processors.
  if (FLAGS_pin && !FLAGS_hosts_apart) places = IdlePlaces(processors);
  if (FLAGS_cpu >= 0) {
    places.primary = FLAGS_cpu;
    // The daemon uses another processor, if there is one.
    if (places.daemon == FLAGS_cpu) places.daemon = processors[0];
  }
  if (FLAGS_daemon_cpu >= 0) places.daemon = FLAGS_daemon_cpu;
  if (FLAGS_replica_cpu >= 0) places.replicas = FLAGS_replica_cpu;
  places.daemon_spin_us = FLAGS_daemon_spin_us;
  return places;
}

Result<RunOptions> ChooseRun() {
  RunOptions run;
  run.uri = FLAGS_uri;
  if (IsGiven("dir")) {
    HL_ASSIGN_OR_RETURN(const ClusterInfo cluster, ReadCluster(FLAGS_dir));
    run.uri = cluster.uri;
  }
  if (FLAGS_region_size != "auto") {
    Result<uint64_t> bytes = ParseSize(FLAGS_region_size);
    if (!bytes.ok()) return bytes.status().WithContext("--region_size");
    HL_RETURN_IF_ERROR(CheckRange("region_size", *bytes, kMinRegionSize, kMaxRegionSize));
    run.region_size = *bytes;
  }
  HL_ASSIGN_OR_RETURN(run.places, ChoosePlaces());
  run.hosts_apart = FLAGS_hosts_apart;
  run.netem = FLAGS_netem;
  run.json = FLAGS_json;
  run.leave_out = IsGiven("suite");
  run.provider = FLAGS_provider;
  run.device = FLAGS_device;
  return run;
}

Status Run() {
  HL_RETURN_IF_ERROR(CheckCombination());
  HL_RETURN_IF_ERROR(CheckRanges());
  HL_ASSIGN_OR_RETURN(const Plan plan, ChoosePlan());
  HL_ASSIGN_OR_RETURN(const RunOptions options, ChooseRun());
  return RunPlan(plan, options, g_interrupted);
}

int Main() {
  WatchSignals();
  const Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-bench: %s\n", status.message().c_str());
  if (g_interrupted.load()) return 128 + g_signal.load();
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::bench

int main(int argc, char** argv) {
  gflags::SetUsageMessage(hyperloop::bench::kUsage);
  gflags::SetVersionString(HYPERLOOP_VERSION);
  if (const auto status = hyperloop::bench::TakeCommandLine(argc, argv, __FILE__)) return *status;
  return hyperloop::bench::Main();
}
