// Resize: gives the region of a group at rest more room, pool by pool.
//
// A resized region is a function of the old region's bytes alone, so members that were equal stay
// equal although each is resized by itself, on its own machine. Slots and extents keep their
// numbers; what is new lies behind them. The log is executed and empty afterwards, and goes on
// where it was. Regions only grow, so that a group of which some members were resized is told by
// its sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hyperloop/core/status.h"
#include "journal/log_scan.h"
#include "layout/region_layout.h"

namespace hyperloop {

// What shall be larger; 0: as it is.
struct ResizeTarget {
  uint64_t region_size = 0;
  uint64_t journal_size = 0;
  uint32_t table_capacity = 0;
};

// The geometry that a group of `now` gets. kInvalidArgument: smaller than it is, or too small for
// what it shall hold; says what would do.
Result<RegionGeometry> PlanResize(const RegionGeometry& now, const ResizeTarget& target);

// Writes `old`, a whole region that was redone up to `log`.tail, into `resized`, which is all zero
// and has to.region_size bytes.
Status ResizeRegion(std::span<const std::byte> old, const RegionInfo& info, const LogState& log,
                    const RegionGeometry& to, std::span<std::byte> resized);

// A pool that nobody uses, judged without changing it.
struct PoolLook {
  RegionInfo info;
  LogCursor tail;
  bool replica = false;  // else a primary's own pool, a copy of the group
};
// kBusy: somebody uses it. kNotFound: its region was never formatted. kCorruption: region or log is
// damaged. kAborted: the group was not closed; says what to do. Others as Pool::Open.
Result<PoolLook> LookAtPool(const std::string& path);

struct ResizeReport {
  bool changed = false;   // false: it has these sizes already
  std::string set_aside;  // where the old pool is
  RegionGeometry geometry;
};
// Puts a larger pool in the place of the one at `path`. Until the last rename the old pool is the
// truth and untouched; what an interrupted call leaves ("<path>.resizing") is replaced by the next.
// The old pool keeps its bytes under the name "<path>.before-resize-<old region size>". Errors as
// LookAtPool, PlanResize and Pool::Create.
Result<ResizeReport> ResizePool(const std::string& path, const ResizeTarget& target);

}  // namespace hyperloop
