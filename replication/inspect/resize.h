// Resize: gives the region of a group at rest more room, one pool after another.
//
// A resized region depends only on the old region's bytes. So members that were equal stay equal,
// although each is resized by itself on its own machine. Slots and extents keep their numbers, and
// new ones lie behind them. The log is executed and empty afterwards, and continues at the same
// position. Regions only grow, so different sizes always mean that only some members were resized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hyperloop/core/status.h"
#include "log/log_scan.h"
#include "region/region_layout.h"

namespace hyperloop {

// The new sizes; 0: unchanged.
struct ResizeTarget {
  uint64_t region_size = 0;
  uint64_t journal_size = 0;
  uint32_t table_capacity = 0;
};

// Returns the new geometry of a group that has `now`. kInvalidArgument: the target is smaller than
// `now`, or too small for its parts; the message names sizes that would do.
Result<RegionGeometry> PlanResize(const RegionGeometry& now, const ResizeTarget& target);

// Writes `old`, a whole region that was redone up to `log`.tail, into `resized`, which is all zero
// and has to.region_size bytes.
Status ResizeRegion(std::span<const std::byte> old, const RegionInfo& info, const LogState& log,
                    const RegionGeometry& to, std::span<std::byte> resized);

// The state of a pool that nobody uses, read without changing it.
struct PoolLook {
  RegionInfo info;
  LogCursor tail;
  bool replica = false;  // false: a primary's own pool, which is a copy of the group
};
// kBusy: a process uses the pool. kNotFound: its region was never formatted. kCorruption: region or
// log is damaged. kAborted: the group was not closed; the message says what to do. Other errors are
// those of Pool::Open.
Result<PoolLook> LookAtPool(const std::string& path);

struct ResizeReport {
  bool changed = false;   // false: the pool has these sizes already
  std::string set_aside;  // path of the old pool
  RegionGeometry geometry;
};
// Replaces the pool at `path` by a larger one. Until the last rename the old pool stays unchanged
// at its path. An interrupted call leaves "<path>.resizing", which the next call replaces. The old
// pool keeps its bytes under the name "<path>.before-resize-<old region size>". Errors are those of
// LookAtPool, PlanResize and Pool::Create.
Result<ResizeReport> ResizePool(const std::string& path, const ResizeTarget& target);

}  // namespace hyperloop
