// One benchmark case: the same primitive over and over on a group, with a window, closed or open
// loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/group.h"
#include "latency_histogram.h"

namespace hyperloop::bench {

enum class Primitive { kWrite, kCas, kMemCopy, kFlush };
// "gwrite", "gcas", "gmemcpy", "gflush".
Result<Primitive> ParsePrimitive(std::string_view name);
std::string_view PrimitiveName(Primitive primitive);

struct Case {
  Primitive primitive = Primitive::kWrite;
  bool flush = false;    // gwrite and gmemcpy; a gcas is always flushed, a gflush is one
  uint64_t size = 1024;  // bytes; gwrite and gmemcpy
  uint32_t window = 1;   // unacknowledged operations at most
  uint64_t number = 100000;
  uint64_t warmup = 10000;  // operations before those measured
  double rate = 0;          // open loop: operations a second; 0: closed loop
};

struct Measurement {
  LatencyHistogram latency;  // closed loop: from submission; open loop: from the intended start
  double seconds = 0;
};

// The part of the region that cases may overwrite.
struct Scratch {
  uint64_t offset = 0;
  std::span<std::byte> bytes;  // of the primary's region, from `offset` on
};

// How much scratch the case needs.
uint64_t ScratchNeeded(const Case& load);

class Workload {
 public:
  // `interrupted` is looked at between operations. `progress` (may be empty) hears the share that
  // is done, four times a second at most.
  Workload(Group& group, Scratch scratch, const Case& load, const std::atomic<bool>& interrupted,
           std::function<void(double)> progress);

  // Writes the scratch to every replica, so that pages are there and words have known values; then
  // the warm-up. kNoSpace: says how much scratch is needed.
  Status Prepare();
  // kAborted when interrupted. gcas checks each replica's original value: kInternal if one is not
  // what it must be.
  Result<Measurement> Run();

 private:
  using Clock = std::chrono::steady_clock;
  Operation Make(uint64_t index) const;
  Result<Measurement> Loop(uint64_t number, bool paced, bool report);
  Status CheckCas(Ticket ticket, uint64_t index);

  Group& group_;
  const Scratch scratch_;
  const Case case_;
  const std::atomic<bool>& interrupted_;
  const std::function<void(double)> progress_;
  uint64_t slots_ = 0;  // places that operations use in turn, so that no two in flight overlap
  uint64_t stride_ = 0;
  uint64_t next_index_ = 0;                // of all operations of this workload
  std::vector<Clock::time_point> starts_;  // by index modulo its size
};

}  // namespace hyperloop::bench
