#include "finished_logs.h"

namespace hyperloop::plugin {

FinishedLogs::Files FinishedLogs::Began(uint64_t number) {
  Files finished;
  while (!logs_.empty() && logs_.begin()->first < number) {
    const auto& [file, followed] = logs_.begin()->second;
    if (!followed || followed()) finished.push_back(file);
    logs_.erase(logs_.begin());
  }
  return finished;
}

void FinishedLogs::Gone(uint64_t number, bool stays) {
  const auto log = logs_.find(number);
  if (log == logs_.end()) return;
  if (stays) {
    log->second.followed = nullptr;
  } else {
    logs_.erase(log);
  }
}

}  // namespace hyperloop::plugin
