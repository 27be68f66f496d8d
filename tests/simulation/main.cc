// hyperloop-simulate: runs whole groups in one process each: primaries, replicas, RNIC, network,
// clocks and power failures, all under one seed.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "simulation/runner.h"
#include "simulation/seeds.h"

namespace hyperloop::simulation {
namespace {

void Print(const Report& report, bool dead_machine) {
  const Outcome& outcome = report.outcome;
  if (report.wrong().empty()) {
    std::printf("seed %" PRIu64 ": sound; %" PRIu64 " writes acknowledged, %" PRIu64
                " faults, %.1f s, trace %016" PRIx64 "\n",
                report.seed, outcome.acknowledged, outcome.faults,
                static_cast<double>(outcome.nanoseconds) / 1e9, outcome.trace);
  } else {
    std::printf("seed %" PRIu64
                ": %s\n  to see it again: hyperloop-simulate --verbose%s --seeds %" PRIu64 "\n",
                report.seed, report.wrong().c_str(), dead_machine ? " --dead-machine" : "",
                report.seed);
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  std::string text = "1-100";
  RunnerOptions options;
  bool find = false, dead_machine = false;
  CLI::App app{
      "Runs replicated groups, each in a process of its own, under a clock and a schedule that "
      "follow from a seed. Replicas and primaries end, lose power, and are out of reach; links are "
      "cut, pools and tables are damaged or lost; primaries take the group from each other, and "
      "change its replicas. Afterwards everything that was acknowledged must be there.\n"
      "Exit status: 0 all runs are sound, 1 one is not, 2 wrong usage. With --find: 0 one is not "
      "sound, 1 all are, 2 wrong usage."};
  app.add_option("--seeds", text, "seeds and ranges of them, ascending, such as 1-200,243,895")
      ->capture_default_str();
  app.add_option("--jobs", options.jobs, "runs at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--folder", options.folder, "where each run makes its pools, about 20 MiB")
      ->capture_default_str();
  app.add_flag("--twice", options.twice, "run each seed twice and compare the traces");
  app.add_option(
         "--patience", options.patience,
         "seconds of a processor that a run may take; by the clock it may take ten times as "
         "long, or a minute if that is more")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_flag("--find", find, "stop at the first run that is not sound");
  app.add_flag("--verbose", options.verbose, "print what happens in each run");
  app.add_flag("--dead-machine", dead_machine,
               "in each run, the machine of one of three replicas is gone, and the seconds are how "
               "long writes stopped: at most 3");
  app.set_version_flag("--version", "hyperloop-simulate " HYPERLOOP_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Result<std::vector<SeedRange>> seeds = ParseSeeds(text);
  if (!seeds.ok()) {
    std::fprintf(stderr, "hyperloop-simulate: --seeds: %s\n", seeds.status().message().c_str());
    return 2;
  }
  if (dead_machine) options.run = RunDeadMachine;
  uint64_t runs = 0, failed = 0, acknowledged = 0, faults = 0, first_failed = UINT64_MAX;
  RunSeeds(*seeds, options, [&](const Report& report) {
    Print(report, dead_machine);
    if (!report.wrong().empty()) {
      ++failed;
      first_failed = std::min(first_failed, report.seed);
    }
    acknowledged += report.outcome.acknowledged;
    faults += report.outcome.faults;
    ++runs;
    return !find || failed == 0;
  });
  std::printf("%" PRIu64 " seeds, %" PRIu64 " faults, %" PRIu64 " writes acknowledged, %" PRIu64
              " runs failed\n",
              runs, faults, acknowledged, failed);
  if (failed != 0) std::printf("the first seed that fails is %" PRIu64 "\n", first_failed);
  if (failed == 0 && find) std::printf("nothing was found: all runs are sound\n");
  return (failed == 0) == find ? 1 : 0;
}

}  // namespace
}  // namespace hyperloop::simulation

int main(int argc, char** argv) { return hyperloop::simulation::Main(argc, argv); }
