// Reading several nodes at the same time: what waits for each of them lasts as long as the slowest
// one, and not as long as all together. The results have the order of the nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hyperloop/replication/inspect.h"

namespace hyperloop::ctl {

// A node's view, or why there is none, which is the result for that node then.
using FoundView = Result<std::unique_ptr<NodeView>>;

// NodeView::ReadStatus of each.
std::vector<Result<NodeStatus>> ReadAtOnce(std::span<const FoundView> views);

// The same, and whether an owner of the node lives.
struct OwnedStatus {
  NodeStatus status;
  bool owner_lives = false;
};
// `may_live`: of each node, whether its owner is watched; else it does not live.
std::vector<Result<OwnedStatus>> ReadOwnedAtOnce(std::span<const FoundView> views,
                                                 const std::function<bool(size_t)>& may_live);

// How many regions of at most `region_size` bytes, not 0, are checked at the same time: as many as
// fit into kMostMemory together, because each is copied into memory, and at least one.
inline constexpr uint64_t kMostMemory = uint64_t{4} << 30;
size_t ChecksAtOnce(uint64_t region_size, size_t count);
// NodeView::Check of each, so many at once.
std::vector<Result<NodeStatus>> CheckAtOnce(std::span<NodeView* const> views);

}  // namespace hyperloop::ctl
