// The output of hyperloop-ycsb about a phase.
#pragma once

#include <string>

#include "ycsb/phases.h"

namespace hyperloop::ycsb {

// JSON objects on one line each; their fields are listed in docs/ycsb.md. The first says that a
// phase (of a workload, when a run) begins. `uri`: empty when unreplicated.
std::string BeginningToJson(const char* phase, const PhaseOptions& options);
std::string ToJson(const PhaseReport& report, const PhaseOptions& options, const std::string& uri);
// A line about the phase, and a table with a line for each type of operation.
std::string ToTable(const PhaseReport& report, const PhaseOptions& options);

}  // namespace hyperloop::ycsb
