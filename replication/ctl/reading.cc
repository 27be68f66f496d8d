#include "ctl/reading.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "primary/asking.h"

namespace hyperloop::ctl {
namespace {

Result<OwnedStatus> ReadOwned(NodeView& view, bool may_live) {
  OwnedStatus read;
  if (may_live) {
    HL_ASSIGN_OR_RETURN(read.owner_lives, view.OwnerLives());
  }
  HL_ASSIGN_OR_RETURN(read.status, view.ReadStatus());
  return read;
}

}  // namespace

std::vector<Result<NodeStatus>> ReadAtOnce(std::span<const FoundView> views) {
  return AtOnce(views.size(), [&](size_t i) -> Result<NodeStatus> {
    if (!views[i].ok()) return views[i].status();
    return (*views[i])->ReadStatus();
  });
}

std::vector<Result<OwnedStatus>> ReadOwnedAtOnce(std::span<const FoundView> views,
                                                 const std::function<bool(size_t)>& may_live) {
  return AtOnce(views.size(), [&](size_t i) -> Result<OwnedStatus> {
    if (!views[i].ok()) return views[i].status();
    return ReadOwned(**views[i], may_live(i));
  });
}

size_t ChecksAtOnce(uint64_t region_size, size_t count) {
  return std::clamp<uint64_t>(kMostMemory / region_size, 1, count);
}

std::vector<Result<NodeStatus>> CheckAtOnce(std::span<NodeView* const> views) {
  if (views.empty()) return {};
  uint64_t largest = 1;
  for (const NodeView* each : views) largest = std::max(largest, each->region_size());
  const size_t threads = ChecksAtOnce(largest, views.size());
  std::vector<std::optional<Result<NodeStatus>>> checked(views.size());
  std::atomic<size_t> next{0};
  CallAtOnce(threads, [&](size_t) {
    for (size_t i = next++; i < views.size(); i = next++) checked[i] = views[i]->Check();
  });
  std::vector<Result<NodeStatus>> out;
  for (auto& each : checked) out.push_back(*std::move(each));
  return out;
}

}  // namespace hyperloop::ctl
