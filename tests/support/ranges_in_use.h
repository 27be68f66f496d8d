// What a region at rest has in use, for FirstDifference.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "inspect/resync.h"
#include "log/file_table.h"
#include "region/region_layout.h"

namespace hyperloop::test {

// All of it, if it holds no group.
inline std::vector<Range> RangesInUse(std::span<const std::byte> region) {
  const Result<RegionInfo> info = ParseSuperblock(region, region.size());
  if (!info.ok()) return {{0, region.size()}};
  const Result<FileTable> table = FileTable::Load(region, *info);
  if (!table.ok()) return {{0, region.size()}};
  return hyperloop::RangesInUse(info->geometry, table->map);
}

}  // namespace hyperloop::test
