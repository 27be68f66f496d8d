#include "primary/leaving.h"

#include <algorithm>

namespace hyperloop {

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
