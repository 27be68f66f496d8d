// hyperloop-ycsb: YCSB's core workloads on RocksDB, replicated or not.
#include <gflags/gflags.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "command_line/flags.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "ycsb/database.h"
#include "ycsb/phases.h"
#include "ycsb/report.h"

DEFINE_string(workload, "a",
              "list, run one after another on one load: a: half updates; b: 5 % updates; c: reads; "
              "d: reads of the latest, 5 % inserts; e: scans, 5 % inserts; f: half "
              "read-modify-writes");
DEFINE_string(db, "", "directory of the database, must be given; loading makes it");
DEFINE_string(uri, "",
              "the group that replicates it (hyperloop://…, from hyperloopctl cluster status); "
              "without it unreplicated");
DEFINE_string(dir, "", "the same as --uri, by the directory of the group's emulated cluster");
DEFINE_string(phase, "both", "load, run, or both");
DEFINE_uint64(records, 100000, "records to load, or that were loaded");
DEFINE_uint64(operations, 100000, "operations of a run");
DEFINE_double(max_seconds, 0,
              "seconds after which a run ends, even before all operations are done; 0: it does "
              "not");
DEFINE_string(rate, "0",
              "operations a second that a run offers, over all threads; the latency of each counts "
              "from when it was to be issued; 0: each thread issues the next when one is done; a "
              "list: each workload runs at one after another");
DEFINE_uint32(threads, 1, "threads that issue operations, one at a time each");
DEFINE_bool(sync, false, "every write synced, as db_bench's --sync");
DEFINE_uint64(seed, 1, "of the random choices, any number");
DEFINE_bool(json, false, "one JSON object a phase instead of tables");
DEFINE_bool(step, false,
            "wait for a line on standard input before each phase (with --json: after saying that "
            "it begins)");

namespace hyperloop::ycsb {
namespace {

using rocksdb::Status;

constexpr char kUsage[] =
    "YCSB's core workloads on RocksDB.\n"
    "Loads records of 10 fields of 100 B, then runs operations on them. With --uri or\n"
    "--dir the database is replicated.\n"
    "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is\n"
    "wrong; 128 + N ended by signal N.";

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};  // that interrupted it

struct Arguments {
  std::vector<std::string> workloads;
  std::vector<double> rates{};
  std::string phase;
  std::string directory;
  std::string uri;
  PhaseOptions phases;
  bool json = false;
  bool step = false;

  bool loads() const { return phase != "run"; }
  bool runs() const { return phase != "load"; }
};

hyperloop::Result<Arguments> TakeArguments() {
  using bench::CheckRange;
  if (!bench::IsGiven("db")) return InvalidArgument("--db must be given");
  Arguments arguments{.workloads = bench::SplitList(FLAGS_workload),
                      .phase = FLAGS_phase,
                      .directory = FLAGS_db,
                      .uri = FLAGS_uri,
                      .phases = {.records = FLAGS_records,
                                 .operations = FLAGS_operations,
                                 .max_seconds = FLAGS_max_seconds,
                                 .threads = FLAGS_threads,
                                 .seed = FLAGS_seed,
                                 .sync = FLAGS_sync},
                      .json = FLAGS_json,
                      .step = FLAGS_step};
  for (const std::string& name : arguments.workloads) {
    if (!FindWorkload(name)) {
      return InvalidArgument("--workload: '" + name + "' is none of a, b, c, d, e, f");
    }
  }
  HL_RETURN_IF_ERROR(bench::CheckApart("uri", {"dir"}));
  HL_RETURN_IF_ERROR(bench::CheckWord("phase", FLAGS_phase, {"load", "run", "both"}));
  HL_RETURN_IF_ERROR(CheckRange("records", FLAGS_records, uint64_t{2}, uint64_t{1} << 40));
  HL_RETURN_IF_ERROR(CheckRange("operations", FLAGS_operations, uint64_t{1}, uint64_t{1} << 40));
  HL_RETURN_IF_ERROR(CheckRange("max_seconds", FLAGS_max_seconds, 0.0, 86400.0));
  HL_ASSIGN_OR_RETURN(arguments.rates, bench::NumberList("rate", FLAGS_rate, 0.0, 1e9));
  HL_RETURN_IF_ERROR(CheckRange("threads", FLAGS_threads, 1u, 1024u));
  if (bench::IsGiven("dir")) {
    HL_ASSIGN_OR_RETURN(const ClusterInfo cluster, ReadCluster(FLAGS_dir));
    arguments.uri = cluster.uri;
  }
  return arguments;
}

// Ctrl-C ends the phase after the operations under way, and closes the database.
void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) {
    g_signal.store(signal, std::memory_order_relaxed);
    g_interrupted.store(true, std::memory_order_relaxed);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

// Overwritten in place on a terminal; silent elsewhere.
void ShowProgress(const char* phase, uint64_t done, uint64_t total) {
  if (::isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s: %llu of %llu (%.0f %%) ", phase,
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(total),
               100 * static_cast<double>(done) / static_cast<double>(total));
  if (done == total) std::fprintf(stderr, "\r\033[K");
}

void Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Waits for a line on standard input.
Status AwaitLine() {
  for (char byte = 0; byte != '\n';) {
    const ssize_t size = ::read(STDIN_FILENO, &byte, 1);
    if (size == 0) return Status::Aborted("--step: standard input ended before a line came");
    if (size < 0 && (errno != EINTR || g_interrupted)) return Status::Aborted("interrupted");
  }
  return Status::OK();
}

// `work` is LoadPhase or RunPhase, with the arguments that only one of them needs.
template <class Work>
Status DoPhase(const char* name, const Arguments& arguments, const PhaseOptions& options,
               Work&& work) {
  if (arguments.json) Print(BeginningToJson(name, options) + "\n");
  if (arguments.step) {
    if (Status status = AwaitLine(); !status.ok()) return status;
  }
  PhaseReport report;
  if (Status status = work(&report); !status.ok()) return status;
  Print(arguments.json ? ToJson(report, options, arguments.uri) + "\n" : ToTable(report, options));
  return Status::OK();
}

// `doing`: what failed, when it fails.
Status DoPhases(const Arguments& arguments, rocksdb::DB& db, std::string* doing) {
  PhaseOptions options = arguments.phases;
  options.workload = *FindWorkload(arguments.workloads.front());
  if (arguments.loads()) {
    *doing = "load";
    Status status = DoPhase("load", arguments, options, [&](PhaseReport* report) {
      return LoadPhase(db, options, g_interrupted, ShowProgress, report);
    });
    if (!status.ok()) return status;
  }
  if (!arguments.runs()) return Status::OK();
  InsertSequence inserts(options.records);
  for (const std::string& workload : arguments.workloads) {
    options.workload = *FindWorkload(workload);
    *doing = std::string("run of workload ") + options.workload.name;
    for (const double rate : arguments.rates) {
      options.rate = rate;
      Status status = DoPhase("run", arguments, options, [&](PhaseReport* report) {
        return RunPhase(db, options, inserts, g_interrupted, ShowProgress, report);
      });
      if (!status.ok()) return status;
    }
  }
  return Status::OK();
}

int Main(const Arguments& arguments) {
  WatchSignals();
  std::unique_ptr<Database> database;
  std::string doing = "opening " + arguments.directory;
  Status status =
      Database::Open({arguments.directory, arguments.uri, arguments.loads()}, &database);
  const bool bad_arguments = status.IsInvalidArgument();
  if (status.ok()) {
    status = DoPhases(arguments, database->db(), &doing);
    const Status closed = database->Close();
    if (status.ok() && !closed.ok()) {
      doing = "closing";
      status = closed;
    }
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "hyperloop-ycsb: %s: %s\n", doing.c_str(), status.ToString().c_str());
  if (g_interrupted.load()) return 128 + g_signal.load();
  return bad_arguments ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::ycsb

int main(int argc, char** argv) {
  gflags::SetUsageMessage(hyperloop::ycsb::kUsage);
  gflags::SetVersionString(HYPERLOOP_VERSION);
  if (const auto status = hyperloop::bench::TakeCommandLine(argc, argv, __FILE__)) return *status;
  const auto arguments = hyperloop::ycsb::TakeArguments();
  if (arguments.ok()) return hyperloop::ycsb::Main(*arguments);
  std::fprintf(stderr, "hyperloop-ycsb: %s\n", arguments.status().message().c_str());
  return arguments.status().code() == hyperloop::Code::kInvalidArgument ? 2 : 1;
}
