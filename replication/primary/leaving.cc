#include "primary/leaving.h"

#include <algorithm>
#include <utility>

#include "common/group_error.h"

namespace hyperloop {
namespace {

constexpr std::chrono::seconds kFirstRefusal{1}, kLongestRefusal{60};

}  // namespace

void LeavingRefusals::Note(FileId file, const Status& why, Clock::time_point now) {
  Refusal& refusal = refusals_[file];
  if (IsGroupError(why.code())) {
    refusal.again = Clock::time_point::max();
    return;
  }
  refusal.pause = std::clamp(2 * refusal.pause, kFirstRefusal, kLongestRefusal);
  refusal.again = now + refusal.pause;
}

bool LeavingRefusals::IsNews(FileId file, const Status& why) {
  if (IsGroupError(why.code())) return !std::exchange(group_told_, true);
  return std::exchange(refusals_[file].why, why.message()) != why.message();
}

void LeavingRefusals::NoteLeft(FileId file) {
  refusals_.erase(file);
  group_told_ = false;
  TryGroupAgain();
}

void LeavingRefusals::TryGroupAgain() {
  for (auto& [file, refusal] : refusals_)
    if (refusal.again == Clock::time_point::max()) refusal.again = {};
}

void LeavingRefusals::Keep(const std::set<FileId>& files) {
  std::erase_if(refusals_, [&](const auto& each) { return !files.contains(each.first); });
}

std::set<FileId> LeavingRefusals::Waiting(Clock::time_point now) const {
  std::set<FileId> waiting;
  for (const auto& [file, refusal] : refusals_)
    if (now < refusal.again) waiting.insert(file);
  return waiting;
}

bool IsCrowded(const DataAreaUse& use) {
  const uint64_t for_logs = use.size - std::min(use.size, use.reserved);
  return use.used > for_logs / 2;
}

// The number of the creating record is the upper part of an id, so the oldest file has the least.
std::optional<FileInfo> NextToLeave(const DataAreaUse& use, std::span<const FileInfo> files,
                                    const std::set<FileId>& finished,
                                    const std::set<FileId>& refused) {
  std::optional<FileInfo> next;
  if (!IsCrowded(use)) return next;
  for (const FileInfo& file : files) {
    const bool may_leave = file.lane == Lane::kLog && file.size != 0 &&
                           finished.contains(file.id) && !refused.contains(file.id);
    if (may_leave && (!next.has_value() || file.id < next->id)) next = file;
  }
  return next;
}

}  // namespace hyperloop
