#include "finished_logs.h"

#include <algorithm>

namespace hyperloop::plugin {

FinishedLogs::Files FinishedLogs::Began(uint64_t number, bool by_next) {
  begun_ = std::max(begun_, number);
  return Take(by_next);
}

FinishedLogs::Files FinishedLogs::Closed(uint64_t number) {
  if (const auto log = logs_.find(number); log != logs_.end()) {
    log->second.closed = true;
    log->second.synced = nullptr;
  }
  return Take(false);
}

FinishedLogs::Files FinishedLogs::Take(bool by_next) {
  Files finished;
  for (auto log = logs_.begin(); log != logs_.end() && log->first < begun_;) {
    const auto& [file, closed, synced] = log->second;
    const bool done = by_next || closed || (synced && synced());
    if (done) finished.push_back(file);
    log = done ? logs_.erase(log) : std::next(log);
  }
  return finished;
}

}  // namespace hyperloop::plugin
