// Runs seeds, each in a process of its own, so that a run that crashes or hangs is one report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "simulation/scenario.h"
#include "simulation/seeds.h"

namespace hyperloop::simulation {

struct RunnerOptions {
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());  // processes at once
  std::string folder = "/dev/shm";
  unsigned patience = 60;  // seconds of a processor that a run may take
  bool twice = false;      // run each seed again, and compare the traces
  bool verbose = false;    // log to stderr
  decltype(Run)* run = Run;
};

struct Report {
  uint64_t seed = 0;
  Outcome outcome;
  std::string ended;  // how the process ended instead of reporting; empty: it reported
  const std::string& wrong() const { return ended.empty() ? outcome.wrong : ended; }
};

// Calls `report` for each of the seeds, in the order in which they end. Once `report` has
// returned false, no further run begins.
void RunSeeds(const std::vector<SeedRange>& seeds, const RunnerOptions& options,
              const std::function<bool(const Report&)>& report);

}  // namespace hyperloop::simulation
