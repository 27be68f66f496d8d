// PhaseTimes: how long each phase of a longer piece of work took, for one line of the log.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperloop {

class PhaseTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // Ends the phase before, if there is one. A phase that is begun twice has both times together.
  // `phase` outlives this object.
  void Begin(std::string_view phase, Clock::time_point now = Clock::now());
  // Ends the last phase. "814.2 ms: connecting 3.1, sealing 20.5", phases in their order.
  std::string End(Clock::time_point now = Clock::now());

 private:
  void EndPhase(Clock::time_point now);

  std::vector<std::pair<std::string_view, Clock::duration>> phases_;
  size_t current_ = 0;  // index of the phase that runs, once there is one
  Clock::time_point begun_{};
};

}  // namespace hyperloop
