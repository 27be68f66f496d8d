#include "workload.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hyperloop::bench {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kChunk = 1 << 20;  // of the writes that prepare the scratch

uint64_t StrideOf(const Case& load) {
  const bool sized = load.primitive == Primitive::kWrite || load.primitive == Primitive::kMemCopy;
  const uint64_t size = sized ? load.size : sizeof(uint64_t);
  return (size + kLine - 1) / kLine * kLine;
}
uint64_t SlotsOf(const Case& load) { return uint64_t{2} * load.window; }

}  // namespace

Result<Primitive> ParsePrimitive(std::string_view name) {
  for (const Primitive primitive :
       {Primitive::kWrite, Primitive::kCas, Primitive::kMemCopy, Primitive::kFlush}) {
    if (name == PrimitiveName(primitive)) return primitive;
  }
  return InvalidArgument("no primitive '" + std::string(name) +
                         "'; there are gwrite, gcas, gmemcpy, gflush and all");
}

std::string_view PrimitiveName(Primitive primitive) {
  switch (primitive) {
    case Primitive::kWrite:
      return "gwrite";
    case Primitive::kCas:
      return "gcas";
    case Primitive::kMemCopy:
      return "gmemcpy";
    case Primitive::kFlush:
      break;
  }
  return "gflush";
}

uint64_t ScratchNeeded(const Case& load) {
  const uint64_t areas = load.primitive == Primitive::kMemCopy ? 2 : 1;
  return areas * SlotsOf(load) * StrideOf(load);
}

Workload::Workload(Group& group, Scratch scratch, const Case& load,
                   const std::atomic<bool>& interrupted, std::function<void(double)> progress)
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
  return Loop(case_.warmup, /*paced=*/false, /*report=*/false).status();
}

Result<Measurement> Workload::Run() { return Loop(case_.number, case_.rate > 0, /*report=*/true); }

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
      // Each lap over the places takes every word one further.
      const uint64_t lap = index / slots_;
      const uint32_t everyone = (uint32_t{1} << group_.group_size()) - 1;
      operation.cas = {true, at, lap, lap + 1, everyone};
      break;
    }
    case Primitive::kFlush:
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

Result<Measurement> Workload::Loop(uint64_t number, bool paced, bool report) {
  constexpr auto kReportEvery = std::chrono::milliseconds(250);
  constexpr auto kPatience = std::chrono::seconds(1);
  constexpr uint64_t kLookEvery = 4096;
  uint64_t idle_turns = 0;
  Measurement measurement;
  const uint64_t first = next_index_;
  uint64_t submitted = 0, acknowledged = 0;
  Ticket newest = 0;  // ticket of operation `submitted - 1`; tickets are consecutive
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  Clock::time_point next_report = begin + kReportEvery;
  const double interval_ns = paced ? 1e9 / case_.rate : 0;
  while (acknowledged < number) {
    while (submitted < number && submitted - acknowledged < case_.window) {
      Clock::time_point start = Clock::now();
      if (paced) {
        const Clock::time_point intended =
            begin + std::chrono::nanoseconds(
                        static_cast<int64_t>(interval_ns * static_cast<double>(submitted)));
        if (start < intended) break;
        start = intended;
      }
      const Result<Ticket> ticket = group_.TrySubmit(Make(next_index_));
      if (!ticket.ok()) {
        if (ticket.status().code() == Code::kBusy) break;
        return ticket.status();
      }
      newest = *ticket;
      starts_[submitted & (starts_.size() - 1)] = start;
      ++submitted;
      ++next_index_;
    }
    const Result<Ticket> done = group_.Poll();
    if (!done.ok()) return done.status();
    const uint64_t unacknowledged = newest > *done ? newest - *done : 0;
    if (submitted - unacknowledged > acknowledged) {
      now = Clock::now();
      while (acknowledged < submitted - unacknowledged) {
        const Clock::time_point start = starts_[acknowledged & (starts_.size() - 1)];
        measurement.latency.Record(static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count()));
        if (case_.primitive == Primitive::kCas) {
          HL_RETURN_IF_ERROR(
              CheckCas(newest - (submitted - 1 - acknowledged), first + acknowledged));
        }
        ++acknowledged;
      }
      if (report && progress_ && now >= next_report) {
        progress_(static_cast<double>(acknowledged) / static_cast<double>(number));
        next_report = now + kReportEvery;
      }
    } else if (++idle_turns % kLookEvery == 0 && submitted > acknowledged &&
               Clock::now() - starts_[acknowledged & (starts_.size() - 1)] > kPatience) {
      // Waiting looks at what Poll does not: the timeout, and whether the device lives.
      HL_RETURN_IF_ERROR(group_.Wait(newest - (submitted - 1 - acknowledged)));
    }
    if (interrupted_.load(std::memory_order_relaxed)) {
      return Aborted("interrupted after " + std::to_string(acknowledged) + " of " +
                     std::to_string(number) + " operations");
    }
  }
  measurement.seconds = std::chrono::duration<double>(now - begin).count();
  return measurement;
}

}  // namespace hyperloop::bench
