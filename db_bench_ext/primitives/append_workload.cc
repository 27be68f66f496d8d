#include "primitives/append_workload.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace hyperloop::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kLogName[] = "000001.log";

std::string Pattern(uint64_t size) {
  std::string text(size, ' ');
  for (uint64_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + (i >> 8));
  return text;
}

}  // namespace

AppendWorkload::AppendWorkload(Store& store, const Case& load, const std::atomic<bool>& interrupted,
                               Progress progress)
    : store_(store),
      case_(load),
      interrupted_(interrupted),
      progress_(std::move(progress)),
      data_(Pattern(load.size)) {}

Status AppendWorkload::NewFile() {
  HL_ASSIGN_OR_RETURN(file_, store_.Create(kLogName));  // replaces the one before
  written_ = 0;
  return Status::Ok();
}

Status AppendWorkload::Prepare() {
  const uint64_t room = store_.statistics().data_bytes;
  longest_ = std::min<uint64_t>(room / 2, 64ull << 20);
  if (case_.size > longest_) {
    return NoSpace("an append of " + std::to_string(case_.size) + " B, and log files have " +
                   std::to_string(room) + " B of the region; use larger regions");
  }
  HL_RETURN_IF_ERROR(NewFile());
  return Loop(case_.warmup, case_.max_seconds / 10, /*report=*/false).status();
}

Result<Measurement> AppendWorkload::Run() {
  return Loop(case_.number, case_.max_seconds, /*report=*/true);
}

Status AppendWorkload::Finish() { return store_.Remove(kLogName); }

Result<Measurement> AppendWorkload::Loop(uint64_t number, double seconds, bool report) {
  constexpr auto kReportEvery = std::chrono::milliseconds(250);
  Measurement measurement;
  std::vector<Clock::time_point> starts;
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin, next_report = begin + kReportEvery;
  for (uint64_t done = 0; done < number;) {
    if (written_ + case_.window * case_.size > longest_ && written_ != 0) {
      HL_RETURN_IF_ERROR(NewFile());
    }
    starts.clear();
    AppendTicket last;
    const uint64_t batch = std::min<uint64_t>(case_.window, number - done);
    for (uint64_t i = 0; i < batch; ++i) {
      starts.push_back(Clock::now());
      HL_ASSIGN_OR_RETURN(last, store_.Append(file_, data_));
    }
    HL_RETURN_IF_ERROR(store_.Await(last));
    now = Clock::now();
    for (const Clock::time_point start : starts) {
      measurement.latency.Record(static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(now - start).count()));
    }
    done += batch;
    written_ += batch * case_.size;
    const double elapsed = std::chrono::duration<double>(now - begin).count();
    if (seconds > 0 && elapsed >= seconds) break;
    if (report && progress_ && now >= next_report) {
      const double share = static_cast<double>(done) / static_cast<double>(number);
      progress_(std::min(1.0, seconds > 0 ? std::max(share, elapsed / seconds) : share));
      next_report = now + kReportEvery;
    }
    if (interrupted_.load(std::memory_order_relaxed)) {
      return Aborted("interrupted after " + std::to_string(done) + " of " + std::to_string(number) +
                     " appends");
    }
  }
  measurement.seconds = std::chrono::duration<double>(now - begin).count();
  return measurement;
}

}  // namespace hyperloop::bench
