// What hyperloop-ycsb prints of a phase.
#pragma once

#include <string>

#include "ycsb/phases.h"

namespace hyperloop::ycsb {

// One JSON object on one line; its fields are listed in docs/ycsb.md. `uri`: empty when
// unreplicated.
std::string ToJson(const PhaseReport& report, const PhaseOptions& options, const std::string& uri);
// A line about the phase, and a table with a line for each type of operation.
std::string ToTable(const PhaseReport& report, const PhaseOptions& options);

}  // namespace hyperloop::ycsb
