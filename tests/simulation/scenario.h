// One run of the simulation: a seed chooses options, what the primaries do, and what fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hyperloop/core/log.h"

namespace hyperloop::simulation {

struct Outcome {
  std::string wrong;  // which promise was broken; empty: none
  uint64_t acknowledged = 0;
  uint64_t faults = 0;
  uint64_t trace = 0;        // equal in two runs of one seed
  uint64_t nanoseconds = 0;  // by the simulated clock
};

// `folder` is empty and gets the pools. At most once in a process.
Outcome Run(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log);
// Another run: the machine of a replica is gone. Its nanoseconds are how long writes stopped.
Outcome RunDeadMachine(uint64_t seed, const std::string& folder, std::shared_ptr<Log> log);

}  // namespace hyperloop::simulation
