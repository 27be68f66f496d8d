#include "softrnic/daemon/refusal_log.h"

#include <algorithm>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kMostKept = 64;

}  // namespace

void RefusalLog::Note(std::string_view name, std::string_view why, std::string_view source,
                      SteadyClock::time_point now) {
  const auto last = std::ranges::find_if(
      lines_, [&](const Line& line) { return line.source == source && line.why == why; });
  if (last != lines_.end() && now - last->written < kSaidAgainAfter) return;
  if (now - written_ < kLeastBetweenLines) return;
  LogLine(log_.get(), LogLevel::kWarn, {kind_, " ", name, " was refused: ", why});
  written_ = now;
  if (last != lines_.end()) lines_.erase(last);
  if (lines_.size() == kMostKept) lines_.pop_front();
  static_cast<void>(RanOutOfMemory([&] {
    lines_.push_back({std::string(source), std::string(why), now});
  }));
}

}  // namespace hyperloop::softrnic
