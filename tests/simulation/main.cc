// hyperloop-simulate: runs whole groups in one process each: primaries, replicas, RNIC, network,
// clocks and power failures, all under one seed.

#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "simulation/runner.h"

namespace hyperloop::simulation {
namespace {

struct Seeds {
  uint64_t first = 0, last = 0;
};

bool Parse(const std::string& text, Seeds* seeds) {
  char rest = 0;
  const int found =
      std::sscanf(text.c_str(), "%" SCNu64 "-%" SCNu64 "%c", &seeds->first, &seeds->last, &rest);
  if (found == 1 && text.find_first_not_of("0123456789") == std::string::npos)
    seeds->last = seeds->first;
  else if (found != 2)
    return false;
  return seeds->first <= seeds->last;
}

void Print(const Report& report) {
  const Outcome& outcome = report.outcome;
  if (report.wrong().empty()) {
    std::printf("seed %" PRIu64 ": sound; %" PRIu64 " writes acknowledged, %" PRIu64
                " faults, %.1f s, trace %016" PRIx64 "\n",
                report.seed, outcome.acknowledged, outcome.faults,
                static_cast<double>(outcome.nanoseconds) / 1e9, outcome.trace);
  } else {
    std::printf("seed %" PRIu64
                ": %s\n  to see it again: hyperloop-simulate --verbose --seeds %" PRIu64 "\n",
                report.seed, report.wrong().c_str(), report.seed);
  }
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  std::string text = "1-100";
  RunnerOptions options;
  bool find = false;
  CLI::App app{
      "Runs replicated groups, each in a process of its own, under a clock and a schedule that "
      "follow from a seed. Replicas and primaries end, lose power, and are out of reach; links are "
      "cut, pools and tables are damaged or lost; primaries take the group from each other, and "
      "change its replicas. Afterwards everything that was acknowledged must be there.\n"
      "Exit status: 0 all runs are sound, 1 one is not, 2 wrong usage. With --find: 0 one is not "
      "sound, 1 all are, 2 wrong usage."};
  app.add_option("--seeds", text, "one seed, or the first and the last one: A-B")
      ->capture_default_str();
  app.add_option("--jobs", options.jobs, "runs at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--folder", options.folder, "where each run makes its pools, about 20 MiB")
      ->capture_default_str();
  app.add_flag("--twice", options.twice, "run each seed twice and compare the traces");
  app.add_option("--patience", options.patience, "seconds of the real clock that a run may take")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_flag("--find", find, "stop at the first run that is not sound");
  app.add_flag("--verbose", options.verbose, "print what happens in each run");
  app.set_version_flag("--version", "hyperloop-simulate " HYPERLOOP_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  Seeds seeds;
  if (!Parse(text, &seeds)) {
    std::fprintf(stderr, "hyperloop-simulate: --seeds %s: give a number, or A-B\n", text.c_str());
    return 2;
  }
  uint64_t runs = 0, failed = 0, acknowledged = 0, faults = 0;
  RunSeeds(seeds.first, seeds.last, options, [&](const Report& report) {
    Print(report);
    failed += report.wrong().empty() ? 0 : 1;
    acknowledged += report.outcome.acknowledged;
    faults += report.outcome.faults;
    ++runs;
    return !find || failed == 0;
  });
  std::printf("%" PRIu64 " seeds, %" PRIu64 " faults, %" PRIu64 " writes acknowledged, %" PRIu64
              " runs failed\n",
              runs, faults, acknowledged, failed);
  return (failed == 0) == find ? 1 : 0;
}

}  // namespace
}  // namespace hyperloop::simulation

int main(int argc, char** argv) { return hyperloop::simulation::Main(argc, argv); }
