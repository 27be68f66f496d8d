// The cases of a run of hyperloop-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "primitives/case.h"
#include "primitives/raw_verbs.h"

namespace hyperloop::bench {

// As a URI's datapath; none: auto.
using DatapathOption = std::optional<Datapath>;

// Cases on one group. All have the same window, because a group has slots for its window, and its
// regions need room for the operations in flight.
struct GroupPlan {
  uint32_t replicas = 3;
  std::optional<DatapathOption> datapath;  // none: the URI's
  std::vector<Case> cases;
};

struct Plan {
  std::vector<GroupPlan> groups;
  std::vector<RawCase> raw;
  size_t cases() const;
};

// The choices that lists make: every combination is a case.
struct Choices {
  std::vector<std::string> primitives{"gwrite"};  // or all
  std::vector<std::string> raw;                   // verbs, or all: these instead of primitives
  std::vector<uint64_t> sizes{1024};
  std::vector<uint32_t> windows{1};
  std::vector<double> rates{0};
  std::vector<uint32_t> replicas{3};
  std::vector<std::string> datapaths;  // empty: the URI's
  std::vector<bool> inlined{false}, chained{false};
  std::vector<uint32_t> signal_every{1}, requests{1};
  bool flush = false;
  WaitMode wait = WaitMode::kPoll;
  uint64_t number = 100000;
  std::optional<uint64_t> warmup;  // none: a tenth of `number`, at most 10000
  double max_seconds = 0;
};
// kInvalidArgument: names an unknown name or a combination that does not exist.
Result<Plan> Combine(const Choices& choices);

// The suites, each a list of combinations: `latency` (every primitive alone over the sizes),
// `windows` (gWRITE over sizes and windows), `groups` (every primitive over group sizes), `append`
// (over sizes, windows 1 and 64), `datapaths` (all four at 1 KB), `raw` (verbs). `all`: each of
// them. The number of operations, the time limit and the way of waiting are those of `base`.
Result<Plan> Suite(const std::vector<std::string>& names, const Choices& base);
// For messages.
std::string SuiteNames();

// Bytes that a region needs for the cases.
uint64_t RegionFor(const std::vector<Case>& cases);

}  // namespace hyperloop::bench
