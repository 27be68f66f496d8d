// LimitedLog: a Log of lines that others may cause, so that they cannot fill the real log.
//
// RefusalLog is for refusals, of which one among many tells enough. Here each line tells something
// else, such as which of several links is up.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"

namespace hyperloop::softrnic {

class LimitedLog final : public Log {
 public:
  static constexpr int kAtOnce = 32;
  static constexpr std::chrono::milliseconds kForOneMore{1000};

  // `log` may be null.
  explicit LimitedLog(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  // Passes on kAtOnce lines at any time, and one more each kForOneMore. The next line that is
  // passed on is preceded by the number of those that were not.
  void Write(LogLevel level, std::string_view message) override;

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<Log> log_;
  Mutex mutex_;
  Clock::time_point unused_ HL_GUARDED_BY(mutex_){};  // when kAtOnce lines may be written again
  uint64_t left_out_ HL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hyperloop::softrnic
