// A case that hyperloop-bench measures, and the result of a measurement.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "hyperloop/core/group.h"
#include "measuring/latency_histogram.h"

namespace hyperloop::bench {

enum class Primitive { kWrite, kCas, kMemCopy, kFlush, kAppend };
// "gwrite", "gcas", "gmemcpy", "gflush", "append".
Result<Primitive> ParsePrimitive(std::string_view name);
std::string_view PrimitiveName(Primitive primitive);
// Whether an operation's size is the caller's choice.
bool Sized(Primitive primitive);

struct Case {
  Primitive primitive = Primitive::kWrite;
  bool flush = false;    // gwrite and gmemcpy; a gcas and an append are always durable
  uint64_t size = 1024;  // bytes; where Sized
  uint32_t window = 1;   // unacknowledged operations at most
  uint64_t number = 100000;
  uint64_t warmup = 10000;  // operations before those measured
  double rate = 0;          // open loop: operations a second; 0: closed loop
  double max_seconds = 0;  // measured at most that long, even if `number` is not reached; 0: no end
  WaitMode wait = WaitMode::kPoll;
};

struct Measurement {
  LatencyHistogram latency;  // closed loop: from submission; open loop: from the intended start
  double seconds = 0;
};

// Called with the share of the work that is done.
using Progress = std::function<void(double)>;

}  // namespace hyperloop::bench
