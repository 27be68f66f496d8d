#include "primary/phase_times.h"

#include <algorithm>
#include <cstdio>

namespace hyperloop {
namespace {

std::string Milliseconds(PhaseTimes::Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f",
                std::chrono::duration<double, std::milli>(time).count());
  return text;
}

}  // namespace

void PhaseTimes::EndPhase(Clock::time_point now) {
  if (!phases_.empty()) phases_[current_].second += now - begun_;
  begun_ = now;
}

void PhaseTimes::Begin(std::string_view phase, Clock::time_point now) {
  EndPhase(now);
  const auto found = std::find_if(phases_.begin(), phases_.end(),
                                  [&](const auto& each) { return each.first == phase; });
  current_ = static_cast<size_t>(found - phases_.begin());
  if (found == phases_.end()) phases_.emplace_back(phase, Clock::duration::zero());
}

std::string PhaseTimes::End(Clock::time_point now) {
  EndPhase(now);
  Clock::duration sum{};
  std::string parts;
  for (const auto& [phase, time] : phases_) {
    sum += time;
    parts.append(parts.empty() ? "" : ", ").append(phase).append(" ").append(Milliseconds(time));
  }
  return Milliseconds(sum) + " ms: " + parts;
}

}  // namespace hyperloop
