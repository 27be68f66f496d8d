#include "finished_logs.h"

#include "local/paths.h"

namespace hyperloop::plugin {

void FinishedLogs::Found(const std::vector<FileInfo>& files) {
  const FileInfo* newest = nullptr;
  for (const FileInfo& file : files) {
    const bool archived = IsArchivedLog(file.name);
    if (file.lane != Lane::kLog || (!archived && !IsLiveLog(file.name))) continue;
    const bool older =
        archived || (newest != nullptr && NumberOf(file.name) < NumberOf(newest->name));
    if (older) {
      finish_(file.id);
      continue;
    }
    if (newest != nullptr) finish_(newest->id);
    newest = &file;
  }
  if (newest != nullptr) Made(NumberOf(newest->name), newest->id);
}

void FinishedLogs::FoundCurrent(uint64_t manifest, const std::vector<FileInfo>& files) {
  for (const FileInfo& file : files) {
    if (file.lane == Lane::kLog && IsManifest(file.name) && NumberOf(file.name) < manifest)
      finish_(file.id);
  }
}

void FinishedLogs::Made(uint64_t number, FileId file, std::function<bool()> followed) {
  const MutexLock lock(mutex_);
  logs_[number] = {file, std::move(followed)};
}

void FinishedLogs::Began(uint64_t number) {
  std::vector<FileId> finished;
  {
    const MutexLock lock(mutex_);
    while (!logs_.empty() && logs_.begin()->first < number) {
      const auto& [file, followed] = logs_.begin()->second;
      if (!followed || followed()) finished.push_back(file);
      logs_.erase(logs_.begin());
    }
  }
  for (const FileId file : finished) finish_(file);
}

void FinishedLogs::Gone(uint64_t number, bool stays) {
  const MutexLock lock(mutex_);
  const auto log = logs_.find(number);
  if (log == logs_.end()) return;
  if (stays) {
    log->second.followed = nullptr;
  } else {
    logs_.erase(log);
  }
}

}  // namespace hyperloop::plugin
