// RefusalLog: says who was refused, and why. Whoever asks again and again cannot fill a log so.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "hyperloop/core/log.h"

namespace hyperloop::softrnic {

class RefusalLog {
 public:
  static constexpr std::chrono::milliseconds kLeastBetweenLines{1000};

  // `kind`: what the names are names of. It outlives this object.
  RefusalLog(std::shared_ptr<Log> log, std::string_view kind) : log_(std::move(log)), kind_(kind) {}

  // Writes a line, unless the last one has the same reason or was written within
  // kLeastBetweenLines. So one that tries again is logged once, and many different ones at
  // intervals. Does without memory.
  void Note(std::string_view name, std::string_view why);

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<Log> log_;
  const std::string_view kind_;
  std::string last_reason_;
  Clock::time_point written_{};
};

}  // namespace hyperloop::softrnic
