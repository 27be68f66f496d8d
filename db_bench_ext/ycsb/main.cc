// hyperloop-ycsb: YCSB's core workloads on RocksDB, replicated or not.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "ycsb/database.h"
#include "ycsb/phases.h"
#include "ycsb/report.h"

namespace hyperloop::ycsb {
namespace {

using rocksdb::Status;

std::atomic<bool> g_interrupted{false};

struct Arguments {
  std::vector<std::string> workloads{"a"};
  std::string phase = "both";
  std::string directory;
  std::string uri;
  PhaseOptions phases{.records = 100000, .operations = 100000};
  bool json = false;
  bool step = false;

  bool loads() const { return phase != "run"; }
  bool runs() const { return phase != "load"; }
};

// Ctrl-C ends the phase after the operations under way, and closes the database.
void WatchSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted.store(true, std::memory_order_relaxed); };
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

// A line on standard input.
Status AwaitLine() {
  for (char byte = 0; byte != '\n';) {
    const ssize_t size = ::read(STDIN_FILENO, &byte, 1);
    if (size == 0) return Status::Aborted("--step: standard input ended before a line came");
    if (size < 0 && (errno != EINTR || g_interrupted)) return Status::Aborted("interrupted");
  }
  return Status::OK();
}

// `work` is LoadPhase or RunPhase, with what they need besides what both do.
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
    Status status = DoPhase("run", arguments, options, [&](PhaseReport* report) {
      return RunPhase(db, options, inserts, g_interrupted, ShowProgress, report);
    });
    if (!status.ok()) return status;
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
  if (g_interrupted.load()) return 130;
  return bad_arguments ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::ycsb

int main(int argc, char** argv) {
  hyperloop::ycsb::Arguments arguments;
  hyperloop::ycsb::PhaseOptions& phases = arguments.phases;
  CLI::App app(
      "YCSB's core workloads on RocksDB: loads records of 10 fields of 100 B, then runs operations "
      "on them. With --uri the database is replicated.",
      "hyperloop-ycsb");
  app.add_option("--workload", arguments.workloads,
                 "list, run one after another on one load: a: half updates; b: 5 % updates; c: "
                 "reads; d: reads of the latest, 5 % inserts; e: scans, 5 % inserts; f: half "
                 "read-modify-writes")
      ->delimiter(',')
      ->check(CLI::IsMember({"a", "b", "c", "d", "e", "f"}, CLI::ignore_case))
      ->capture_default_str();
  app.add_option("--db", arguments.directory, "directory of the database; loading makes it")
      ->required();
  app.add_option("--uri", arguments.uri,
                 "the group that replicates it (hyperloop://…, from hyperloopctl cluster status); "
                 "default: unreplicated");
  app.add_option("--phase", arguments.phase, "load, run, or both")
      ->check(CLI::IsMember({"load", "run", "both"}))
      ->capture_default_str();
  app.add_option("--records", phases.records, "records to load, or that were loaded")
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--operations", phases.operations, "operations of the run")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--max-seconds", phases.max_seconds,
                 "a run ends then, even before all operations are done; 0: it does not")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--threads", phases.threads, "that issue operations, one at a time each")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_flag("--sync", phases.sync, "every write synced, as db_bench's --sync");
  app.add_option("--seed", phases.seed, "of the random choices")->capture_default_str();
  app.add_flag("--json", arguments.json, "one JSON object a phase instead of tables");
  app.add_flag("--step", arguments.step,
               "wait for a line on standard input before each phase (with --json: after saying "
               "that it begins)");
  app.footer(
      "Exit status: 0 done; 1 failed, the reason is on stderr; 2 the command line is wrong; 130 "
      "interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return hyperloop::ycsb::Main(arguments);
}
