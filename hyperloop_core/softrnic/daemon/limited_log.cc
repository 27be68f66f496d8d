#include "softrnic/daemon/limited_log.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

namespace hyperloop::softrnic {

void LimitedLog::Write(LogLevel level, std::string_view message) {
  if (log_ == nullptr) return;
  const MutexLock lock(mutex_);
  const auto now = Clock::now();
  unused_ = std::max(unused_, now);
  if (unused_ - now > (kAtOnce - 1) * kForOneMore) {
    ++left_out_;
    return;
  }
  unused_ += kForOneMore;
  if (left_out_ != 0) {
    std::array<char, 24> number;
    std::snprintf(number.data(), number.size(), "%" PRIu64, left_out_);
    left_out_ = 0;
    LogLine(log_.get(), LogLevel::kWarn,
            {"lines left out, because there were many: ", number.data()});
  }
  log_->Write(level, message);
}

}  // namespace hyperloop::softrnic
