#include "primitives/plan.h"

#include <algorithm>

#include "primitives/workload.h"

namespace hyperloop::bench {
namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

Result<std::vector<std::optional<DatapathOption>>> Datapaths(const Choices& choices) {
  std::vector<std::optional<DatapathOption>> datapaths;
  for (const std::string& name : choices.datapaths) {
    DatapathOption datapath;
    if (name != "auto") {
      HL_ASSIGN_OR_RETURN(datapath, ParseDatapath(name));
    }
    datapaths.emplace_back(datapath);
  }
  if (datapaths.empty()) datapaths.emplace_back(std::nullopt);
  return datapaths;
}

Result<std::vector<Primitive>> Primitives(const Choices& choices) {
  std::vector<Primitive> primitives;
  for (const std::string& name : choices.primitives) {
    if (name == "all") {
      return std::vector<Primitive>{Primitive::kWrite, Primitive::kCas, Primitive::kMemCopy,
                                    Primitive::kFlush, Primitive::kAppend};
    }
    HL_ASSIGN_OR_RETURN(primitives.emplace_back(), ParsePrimitive(name));
  }
  return primitives;
}

uint64_t Warmup(const Choices& choices) {
  return choices.warmup.value_or(std::min<uint64_t>(choices.number / 10, 10000));
}

Status CheckChoices(const Choices& choices) {
  const bool paced =
      std::any_of(choices.rates.begin(), choices.rates.end(), [](double rate) { return rate > 0; });
  if (paced && choices.wait == WaitMode::kEvent) {
    return InvalidArgument(
        "--use_notify sleeps until an acknowledgement, and --rate starts operations meanwhile: not "
        "both");
  }
  if (std::count(choices.sizes.begin(), choices.sizes.end(), 0) != 0) {
    return InvalidArgument("--size 0: an operation has at least 1 byte");
  }
  return Status::Ok();
}

Result<std::vector<Case>> Cases(const Choices& choices, uint32_t window) {
  HL_ASSIGN_OR_RETURN(const std::vector<Primitive> primitives, Primitives(choices));
  std::vector<Case> cases;
  for (const Primitive primitive : primitives) {
    for (const uint64_t size : Sized(primitive) ? choices.sizes : std::vector<uint64_t>{8}) {
      for (const double rate : choices.rates) {
        if (rate > 0 && primitive == Primitive::kAppend) {
          return InvalidArgument("--rate: an append returns when it is done, so it has no rate");
        }
        cases.push_back({.primitive = primitive,
                         .flush = choices.flush,
                         .size = size,
                         .window = window,
                         .number = choices.number,
                         .warmup = Warmup(choices),
                         .rate = rate,
                         .max_seconds = choices.max_seconds,
                         .wait = choices.wait});
      }
    }
  }
  return cases;
}

Result<std::vector<RawCase>> RawCases(const Choices& choices) {
  std::vector<RawCase> cases;
  std::vector<std::string> names = choices.raw;
  if (std::find(names.begin(), names.end(), "all") != names.end()) {
    names = {"write", "send", "write-imm", "read", "read-memory"};
  }
  for (const std::string& name : names) {
    RawCase load;
    HL_ASSIGN_OR_RETURN(load.verb, ParseVerb(name));
    load.wait = choices.wait;
    load.number = choices.number;
    load.warmup = Warmup(choices);
    load.max_seconds = choices.max_seconds;
    for (const uint64_t size : choices.sizes) {
      if (size > 64 * kMiB) return InvalidArgument("--size: a raw verb moves at most 64M");
      load.size = static_cast<uint32_t>(size);
      for (const bool inlined : choices.inlined) {
        for (const uint32_t signal_every : choices.signal_every) {
          for (const uint32_t requests : choices.requests) {
            for (const bool chained : choices.chained) {
              load.inline_data = inlined;
              load.signal_every = signal_every;
              load.requests = requests;
              load.chained = chained;
              cases.push_back(load);
            }
          }
        }
      }
    }
  }
  return cases;
}

// --- suites

const std::vector<uint64_t> kAllSizes{64,        128,        256,      512,       kKiB,
                                      2 * kKiB,  4 * kKiB,   8 * kKiB, 16 * kKiB, 32 * kKiB,
                                      64 * kKiB, 256 * kKiB, kMiB};
const std::vector<uint32_t> kReportWindows{20, 50, 100, 200, 500, 1000, 2000};

using Add = Status (*)(Choices base, Plan* plan);

Status AddCombination(const Choices& choices, Plan* plan) {
  HL_ASSIGN_OR_RETURN(Plan more, Combine(choices));
  std::move(more.groups.begin(), more.groups.end(), std::back_inserter(plan->groups));
  std::move(more.raw.begin(), more.raw.end(), std::back_inserter(plan->raw));
  return Status::Ok();
}

Status AddLatency(Choices base, Plan* plan) {
  base.primitives = {"gwrite", "gcas", "gmemcpy", "gflush"};
  base.sizes = kAllSizes;
  base.windows = {1};
  base.flush = true;
  return AddCombination(base, plan);
}
Status AddWindows(Choices base, Plan* plan) {
  base.sizes = kAllSizes;
  base.windows = {1, 8, 64};
  base.windows.insert(base.windows.end(), kReportWindows.begin(), kReportWindows.end());
  return AddCombination(base, plan);
}
Status AddGroups(Choices base, Plan* plan) {
  base.primitives = {"gwrite", "gcas", "gmemcpy", "gflush"};
  base.sizes = {128, kKiB};
  base.windows = {1, 64};
  base.replicas = {1, 2, 3, 4, 5, 6, 7, 8};
  base.flush = true;
  return AddCombination(base, plan);
}
Status AddAppend(Choices base, Plan* plan) {
  base.primitives = {"append"};
  base.sizes = kAllSizes;
  base.windows = {1, 64};
  return AddCombination(base, plan);
}
Status AddDatapaths(Choices base, Plan* plan) {
  base.primitives = {"gwrite", "append"};
  base.sizes = {kKiB};
  base.replicas = {1, 3};
  base.datapaths = {"offload", "fanout", "cpu-polling", "cpu-event"};
  base.flush = true;
  return AddCombination(base, plan);
}
Status AddRaw(Choices base, Plan* plan) {
  base.raw = {"all"};
  base.sizes = {16, 64, 256, 512, kKiB, 4 * kKiB, 64 * kKiB};
  HL_RETURN_IF_ERROR(AddCombination(base, plan));
  base.sizes = {16, 64, 256, 512};
  base.inlined = {true};
  base.signal_every = {1, 16};
  HL_RETURN_IF_ERROR(AddCombination(base, plan));
  base.sizes = {64};
  base.raw = {"write", "send", "write-imm"};
  base.requests = {2, 8};
  base.signal_every = {1};
  base.chained = {false, true};
  return AddCombination(base, plan);
}

struct NamedSuite {
  const char* name;
  Add add;
};
constexpr NamedSuite kSuites[] = {{"latency", AddLatency},     {"windows", AddWindows},
                                  {"groups", AddGroups},       {"append", AddAppend},
                                  {"datapaths", AddDatapaths}, {"raw", AddRaw}};

}  // namespace

size_t Plan::cases() const {
  size_t count = raw.size();
  for (const GroupPlan& group : groups) count += group.cases.size();
  return count;
}

Result<Plan> Combine(const Choices& choices) {
  HL_RETURN_IF_ERROR(CheckChoices(choices));
  Plan plan;
  if (!choices.raw.empty()) {
    HL_ASSIGN_OR_RETURN(plan.raw, RawCases(choices));
    return plan;
  }
  HL_ASSIGN_OR_RETURN(const auto datapaths, Datapaths(choices));
  for (const uint32_t replicas : choices.replicas) {
    for (const std::optional<DatapathOption>& datapath : datapaths) {
      for (const uint32_t window : choices.windows) {
        HL_ASSIGN_OR_RETURN(std::vector<Case> cases, Cases(choices, window));
        plan.groups.push_back({replicas, datapath, std::move(cases)});
      }
    }
  }
  return plan;
}

Result<Plan> Suite(const std::vector<std::string>& names, const Choices& base) {
  Choices choices;
  choices.number = base.number;
  choices.warmup = base.warmup;
  choices.max_seconds = base.max_seconds;
  Plan plan;
  for (const std::string& name : names) {
    bool found = false;
    for (const NamedSuite& suite : kSuites) {
      if (name != "all" && name != suite.name) continue;
      found = true;
      HL_RETURN_IF_ERROR(suite.add(choices, &plan));
    }
    if (!found) return InvalidArgument("no suite '" + name + "'; there are " + SuiteNames());
  }
  return plan;
}

std::string SuiteNames() {
  std::string names;
  for (const NamedSuite& suite : kSuites) names += std::string(suite.name) + ", ";
  return names + "all";
}

uint64_t RegionFor(const std::vector<Case>& cases) {
  constexpr uint64_t kRound = 64 * kMiB;
  constexpr uint64_t kBookkeeping = 64 * kMiB;  // journal ring, file table and their like
  constexpr uint64_t kLogFiles = 160 * kMiB;    // for appends
  uint64_t needed = 0;
  for (const Case& each : cases) {
    needed =
        std::max(needed, each.primitive == Primitive::kAppend ? kLogFiles : ScratchNeeded(each));
  }
  return (needed + kBookkeeping + kRound - 1) / kRound * kRound;
}

}  // namespace hyperloop::bench
