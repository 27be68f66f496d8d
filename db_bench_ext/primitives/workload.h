// One benchmark case: repeats one group primitive on a group, with a window, in a closed or open
// loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "hyperloop/core/group.h"
#include "primitives/case.h"

namespace hyperloop::bench {

// The part of the region that cases may overwrite.
struct Scratch {
  uint64_t offset = 0;
  std::span<std::byte> bytes;  // of the primary's region, from `offset` on
};

// How much scratch the case needs.
uint64_t ScratchNeeded(const Case& load);

class Workload {
 public:
  // `interrupted` is checked between operations. `progress` (may be empty) is called with the share
  // that is done, at most four times a second.
  Workload(Group& group, Scratch scratch, const Case& load, const std::atomic<bool>& interrupted,
           Progress progress);

  // Writes the scratch to every replica, so that pages exist and words have known values; then
  // makes the warm-up. kNoSpace: the message says how much scratch is needed.
  Status Prepare();
  // kAborted when interrupted. gcas checks each replica's original value: kInternal if one is
  // wrong.
  Result<Measurement> Run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    uint64_t number = 0;
    double seconds = 0;  // 0: none
    double rate = 0;
    bool report = false;
  };
  // A run under way. Operations are counted from its first one.
  struct Turn {
    uint64_t first = 0;   // index of its first operation
    uint64_t target = 0;  // operations wanted; fewer once the time is over
    uint64_t submitted = 0, acknowledged = 0;
    Ticket newest = 0;  // ticket of operation `submitted - 1`; tickets are consecutive
    Clock::time_point begin, now, end, next_report;
    uint64_t idle_turns = 0;
  };

  Operation Make(uint64_t index) const;
  Result<Measurement> Loop(const Limits& limits);
  // Starts the operations that the window and the schedule allow.
  Status SubmitDue(const Limits& limits, Turn* turn);
  // Whether an operation was acknowledged.
  Result<bool> TakeAcknowledged(Turn* turn, LatencyHistogram* latency);
  Status WhileNothingComes(Turn* turn);
  Status CheckCas(Ticket ticket, uint64_t index);
  Ticket Oldest(const Turn& turn) const {
    return turn.newest - (turn.submitted - 1 - turn.acknowledged);
  }
  Clock::time_point& start(uint64_t operation) { return starts_[operation & (starts_.size() - 1)]; }

  Group& group_;
  const Scratch scratch_;
  const Case case_;
  const std::atomic<bool>& interrupted_;
  const Progress progress_;
  uint64_t slots_ = 0;  // places that operations use in turn, so that no two in flight overlap
  uint64_t stride_ = 0;
  uint64_t next_index_ = 0;                // of all operations of this workload
  std::vector<Clock::time_point> starts_;  // by operation modulo its size
};

}  // namespace hyperloop::bench
