// RunCase: one closed loop of one primitive over a ModelledGroup, and what it measures.
#pragma once

#include <cstdint>
#include <string_view>

#include "group/slot_program.h"
#include "hyperloop/core/group.h"
#include "model/costs.h"

namespace hyperloop::model {

enum class Primitive : uint8_t { kWrite, kMemCopy, kCompareAndSwap, kFlush };
std::string_view PrimitiveName(Primitive primitive);
Result<Primitive> ParsePrimitive(std::string_view name);

struct Case {
  Primitive primitive = Primitive::kWrite;
  Datapath datapath = Datapath::kOffload;
  FlushOrder order = FlushOrder::kPipelined;  // offload
  bool flush = false;                         // gWRITE
  uint64_t size = 1024;                       // bytes; gWRITE, gMEMCPY
  uint32_t replicas = 3;
  uint32_t window = 1;
  uint32_t load = 0;   // threads that compute beside each replica's thread
  bool yields = true;  // cpu-polling: the thread yields its processor when it has polled in vain
  uint64_t operations = 10000;
  uint64_t seed = 1;
};

struct CaseResult {
  double mean_us = 0, p50_us = 0, p95_us = 0, p99_us = 0, max_us = 0;
  double operations_per_second = 0;
  double wqes = 0, round_trips = 0;  // an operation, on all nodes
};

// With a load the operations are shared by so many groups, one after the other, with seeds from
// Case::seed on: what a scheduler does depends on the moment at which one begins.
inline constexpr uint64_t kLoadedRuns = 10;

// Afterwards every replica holds the bytes that it must, or the result is kCorruption.
Result<CaseResult> RunCase(const Case& c, const Costs& costs);

}  // namespace hyperloop::model
