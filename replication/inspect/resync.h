// Resync: pure functions that find which bytes of a member's region differ, and put them into the
// order in which they must be sent.
//
// A member may fail at any point while it is made equal. Its log must then still be one that
// ScanLog accepts. So ring bytes are sent first and in log order, then the bytes to which records
// apply, and the head last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hyperloop/core/group.h"
#include "log/log_scan.h"
#include "region/region_layout.h"

namespace hyperloop {

// Returns the 64-bit checksum of each block. The last block may be short. `block_size`: bytes, at
// least 64.
std::vector<uint64_t> BlockChecksums(std::span<const std::byte> bytes, uint64_t block_size);

// Returns the ranges of blocks whose checksums differ. Neighbours are merged into ranges of whole
// blocks with at most max_range bytes, or of one block if a block is longer. `base`: the offset of
// the first block; `size`: how many bytes both lists cover.
std::vector<Range> DifferingRanges(std::span<const uint64_t> ours, std::span<const uint64_t> theirs,
                                   uint64_t base, uint64_t size, uint64_t block_size,
                                   uint64_t max_range = 1u << 20);

// Returns the ranges of a region that are in use, in their order: everything in front of the data
// extents, and of each extent the bytes that its entry in `map` counts. Neighbours are merged.
// Nobody reads the other bytes before they are written again, so members may differ there.
std::vector<Range> RangesInUse(const RegionGeometry& geometry, std::span<const MapEntry> map);

// Returns the same ranges, cut and in the order of sending: superblock; ring from the log's head to
// its tail; rest of the ring; applied bytes; head blocks. The lock word is left out, because only
// gCAS changes it.
std::vector<Range> ResyncOrder(std::span<const Range> ranges, const RegionInfo& info,
                               const LogState& log);

}  // namespace hyperloop
