// RefusalLog: logs who was refused, and why, at a bounded rate, so that repeated requests do not
// fill the log.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "hyperloop/core/log.h"

namespace hyperloop::softrnic {

class RefusalLog {
 public:
  using SteadyClock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLeastBetweenLines{1000};
  static constexpr std::chrono::minutes kSaidAgainAfter{60};

  // `kind`: the words before each name ("client", "link from"). It outlives this object.
  RefusalLog(std::shared_ptr<Log> log, std::string_view kind) : log_(std::move(log)), kind_(kind) {}

  // Writes a line, unless one was written within kLeastBetweenLines, or one with this reason for
  // this source within kSaidAgainAfter. `source`: whose requests count as the same; empty: those of
  // all. Works without memory, too.
  void Note(std::string_view name, std::string_view why, std::string_view source = {},
            SteadyClock::time_point now = SteadyClock::now());

 private:
  struct Line {
    std::string source, why;
    SteadyClock::time_point written;
  };

  const std::shared_ptr<Log> log_;
  const std::string_view kind_;
  std::list<Line> lines_;  // the last ones, at most kMostKept
  SteadyClock::time_point written_{};
};

}  // namespace hyperloop::softrnic
