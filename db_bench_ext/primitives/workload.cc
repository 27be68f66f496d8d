#include "primitives/workload.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hyperloop::bench {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kChunk = 1 << 20;  // of the writes that prepare the scratch

uint64_t StrideOf(const Case& load) {
  const uint64_t size = Sized(load.primitive) ? load.size : sizeof(uint64_t);
  return (size + kLine - 1) / kLine * kLine;
}
// Small operations get more places than the window needs, so that a place is not reused at once.
uint64_t SlotsOf(const Case& load) {
  constexpr uint64_t kMuch = 64ull << 20;
  const uint64_t twice = uint64_t{2} * load.window;
  return twice * StrideOf(load) <= kMuch ? twice : load.window + uint64_t{1};
}

}  // namespace

uint64_t ScratchNeeded(const Case& load) {
  const uint64_t areas = load.primitive == Primitive::kMemCopy ? 2 : 1;
  return areas * SlotsOf(load) * StrideOf(load);
}

Workload::Workload(Group& group, Scratch scratch, const Case& load,
                   const std::atomic<bool>& interrupted, Progress progress)
    : group_(group),
      scratch_(scratch),
      case_(load),
      interrupted_(interrupted),
      progress_(std::move(progress)),
      slots_(SlotsOf(load)),
      stride_(StrideOf(load)),
      starts_(std::bit_ceil(uint64_t{load.window})) {}

Status Workload::Prepare() {
  const uint64_t needed = ScratchNeeded(case_);
  if (needed > scratch_.bytes.size()) {
    return NoSpace("the case needs " + std::to_string(needed) + " B of the region, " +
                   std::to_string(scratch_.bytes.size()) +
                   " B are there; use a smaller --size or --window, or larger regions");
  }
  if (case_.primitive == Primitive::kCas) {
    std::memset(scratch_.bytes.data(), 0, needed);
  } else {
    uint64_t state = 88172645463325252u;  // xorshift: bytes that no layer can guess
    for (uint64_t i = 0; i + sizeof state <= needed; i += sizeof state) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(scratch_.bytes.data() + i, &state, sizeof state);
    }
  }
  for (uint64_t at = 0; at < needed; at += kChunk) {
    HL_RETURN_IF_ERROR(
        group_.Write(scratch_.offset + at, std::min(kChunk, needed - at), /*flush=*/true).status());
  }
  HL_RETURN_IF_ERROR(group_.WaitAll());
  return Loop({.number = case_.warmup, .seconds = case_.max_seconds / 10}).status();
}

Result<Measurement> Workload::Run() {
  return Loop(
      {.number = case_.number, .seconds = case_.max_seconds, .rate = case_.rate, .report = true});
}

Operation Workload::Make(uint64_t index) const {
  const uint64_t at = scratch_.offset + index % slots_ * stride_;
  Operation operation;
  operation.flush = case_.flush;
  switch (case_.primitive) {
    case Primitive::kWrite:
      operation.write = {at, case_.size};
      break;
    case Primitive::kMemCopy:
      operation.copy = {at, at + slots_ * stride_, case_.size};
      break;
    case Primitive::kCas: {
      // Each lap over the places increments every word.
      const uint64_t lap = index / slots_;
      const uint32_t everyone = (uint32_t{1} << group_.group_size()) - 1;
      operation.cas = {true, at, lap, lap + 1, everyone};
      break;
    }
    default:
      operation.flush = true;
      break;
  }
  return operation;
}

Status Workload::CheckCas(Ticket ticket, uint64_t index) {
  OperationResult result;
  HL_RETURN_IF_ERROR(group_.Wait(ticket, &result));
  for (uint32_t replica = 0; replica < group_.group_size(); ++replica) {
    if (result.original[replica] != index / slots_) {
      return Internal("gcas " + std::to_string(index) + ": replica " + std::to_string(replica) +
                      " held " + std::to_string(result.original[replica]) + " instead of " +
                      std::to_string(index / slots_));
    }
  }
  return Status::Ok();
}

Result<Measurement> Workload::Loop(const Limits& limits) {
  constexpr auto kReportEvery = std::chrono::milliseconds(250);
  Measurement measurement;
  Turn turn;
  turn.first = next_index_;
  turn.target = limits.number;
  turn.begin = turn.now = Clock::now();
  turn.next_report = turn.begin + kReportEvery;
  turn.end =
      limits.seconds <= 0
          ? Clock::time_point::max()
          : turn.begin + std::chrono::nanoseconds(static_cast<int64_t>(limits.seconds * 1e9));
  while (turn.acknowledged < turn.target) {
    HL_RETURN_IF_ERROR(SubmitDue(limits, &turn));
    HL_ASSIGN_OR_RETURN(const bool progressed, TakeAcknowledged(&turn, &measurement.latency));
    if (progressed && turn.now >= turn.next_report) {
      const double share = std::max(
          static_cast<double>(turn.acknowledged) / static_cast<double>(turn.target),
          limits.seconds <= 0
              ? 0
              : std::chrono::duration<double>(turn.now - turn.begin).count() / limits.seconds);
      if (limits.report && progress_) progress_(std::min(share, 1.0));
      turn.next_report = turn.now + kReportEvery;
    }
    if (!progressed) HL_RETURN_IF_ERROR(WhileNothingComes(&turn));
    // Operations that were started are awaited, and their latency counts.
    if (turn.now >= turn.end) turn.target = turn.submitted;
    if (interrupted_.load(std::memory_order_relaxed)) {
      return Aborted("interrupted after " + std::to_string(turn.acknowledged) + " of " +
                     std::to_string(limits.number) + " operations");
    }
  }
  measurement.seconds = std::chrono::duration<double>(turn.now - turn.begin).count();
  return measurement;
}

Status Workload::SubmitDue(const Limits& limits, Turn* turn) {
  const double interval_ns = limits.rate > 0 ? 1e9 / limits.rate : 0;
  while (turn->submitted < turn->target && turn->submitted - turn->acknowledged < case_.window) {
    Clock::time_point started = Clock::now();
    if (limits.rate > 0) {
      const Clock::time_point intended =
          turn->begin + std::chrono::nanoseconds(static_cast<int64_t>(
                            interval_ns * static_cast<double>(turn->submitted)));
      if (started < intended) break;
      started = intended;
    }
    const Result<Ticket> ticket = group_.TrySubmit(Make(next_index_));
    if (!ticket.ok()) {
      if (ticket.status().code() == Code::kBusy) break;
      return ticket.status();
    }
    turn->newest = *ticket;
    start(turn->submitted) = started;
    ++turn->submitted;
    ++next_index_;
  }
  return Status::Ok();
}

Result<bool> Workload::TakeAcknowledged(Turn* turn, LatencyHistogram* latency) {
  HL_ASSIGN_OR_RETURN(const Ticket done, group_.Poll());
  const uint64_t unacknowledged = turn->newest > done ? turn->newest - done : 0;
  if (turn->submitted - unacknowledged <= turn->acknowledged) return false;
  turn->now = Clock::now();
  while (turn->acknowledged < turn->submitted - unacknowledged) {
    latency->Record(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(turn->now - start(turn->acknowledged))
            .count()));
    if (case_.primitive == Primitive::kCas) {
      HL_RETURN_IF_ERROR(CheckCas(Oldest(*turn), turn->first + turn->acknowledged));
    }
    ++turn->acknowledged;
  }
  return true;
}

Status Workload::WhileNothingComes(Turn* turn) {
  constexpr auto kPatience = std::chrono::seconds(1);
  constexpr uint64_t kLookEvery = 4096;
  const bool pending = turn->submitted > turn->acknowledged;
  if (pending && case_.wait == WaitMode::kEvent) return group_.Wait(Oldest(*turn));
  if (++turn->idle_turns % kLookEvery != 0) return Status::Ok();
  turn->now = Clock::now();
  if (!pending || turn->now - start(turn->acknowledged) <= kPatience) return Status::Ok();
  // Wait also checks the timeout and whether the device lives, which Poll does not.
  return group_.Wait(Oldest(*turn));
}

}  // namespace hyperloop::bench
