// Resync: which bytes of a member's region differ, and in which order to send them. Pure functions.
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
#include "journal/log_scan.h"
#include "layout/region_layout.h"

namespace hyperloop {

// 64-bit checksum of each block (the last may be short). block_size: at least 64.
std::vector<uint64_t> BlockChecksums(std::span<const std::byte> bytes, uint64_t block_size);

// Ranges of blocks whose checksums differ, neighbours merged, none longer than max_range (rounded
// up to a block). `base`: offset of block 0; `size`: bytes covered by both lists.
std::vector<Range> DifferingRanges(std::span<const uint64_t> ours, std::span<const uint64_t> theirs,
                                   uint64_t base, uint64_t size, uint64_t block_size,
                                   uint64_t max_range = 1u << 20);

// The same ranges cut and put in sending order: superblock; ring from the log's head position to
// its tail, then the rest of the ring; applied bytes; head blocks. The lock word is left out: it is
// changed by gCAS alone.
std::vector<Range> ResyncOrder(std::span<const Range> ranges, const RegionInfo& info,
                               const LogState& log);

}  // namespace hyperloop
