#include "softrnic/daemon/refusal_log.h"

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::softrnic {

void RefusalLog::Note(std::string_view name, std::string_view why) {
  const auto now = Clock::now();
  if (why == last_reason_ || now - written_ < kLeastBetweenLines) return;
  LogLine(log_.get(), LogLevel::kWarn, {kind_, " ", name, " was refused: ", why});
  if (RanOutOfMemory([&] { last_reason_ = why; })) last_reason_.clear();
  written_ = now;
}

}  // namespace hyperloop::softrnic
