#include "inspect/resync.h"

#include <isa-l/crc64.h>

#include <algorithm>

namespace hyperloop {
namespace {

// Appends the part of `range` that lies in [begin, end).
void AppendPart(const Range& range, uint64_t begin, uint64_t end, std::vector<Range>* out) {
  const uint64_t from = std::max(range.offset, begin);
  const uint64_t to = std::min(range.offset + range.size, end);
  if (from < to) out->push_back({from, to - from});
}

}  // namespace

std::vector<uint64_t> BlockChecksums(std::span<const std::byte> bytes, uint64_t block_size) {
  std::vector<uint64_t> checksums;
  checksums.reserve(bytes.size() / block_size + 1);
  for (uint64_t at = 0; at < bytes.size(); at += block_size) {
    const auto block = bytes.subspan(at, std::min<uint64_t>(block_size, bytes.size() - at));
    checksums.push_back(
        crc64_ecma_refl(0, reinterpret_cast<const unsigned char*>(block.data()), block.size()));
  }
  return checksums;
}

std::vector<Range> DifferingRanges(std::span<const uint64_t> ours, std::span<const uint64_t> theirs,
                                   uint64_t base, uint64_t size, uint64_t block_size,
                                   uint64_t max_range) {
  std::vector<Range> ranges;
  const uint64_t most = std::max(max_range / block_size, uint64_t{1}) * block_size;
  for (uint64_t i = 0; i * block_size < size; ++i) {
    const bool same = i < ours.size() && i < theirs.size() && ours[i] == theirs[i];
    if (same) continue;
    const Range block{base + i * block_size, std::min(block_size, size - i * block_size)};
    Range* last = ranges.empty() ? nullptr : &ranges.back();
    if (last != nullptr && last->offset + last->size == block.offset &&
        last->size + block.size <= most) {
      last->size += block.size;
    } else {
      ranges.push_back(block);
    }
  }
  return ranges;
}

std::vector<Range> RangesInUse(const RegionGeometry& geometry, std::span<const MapEntry> map) {
  std::vector<Range> ranges = {{0, geometry.data_offset}};
  for (uint32_t extent = 0; extent < map.size(); ++extent) {
    if (map[extent].slot_plus_one == 0) continue;
    const uint64_t offset = geometry.ExtentOffset(extent);
    Range& last = ranges.back();
    if (last.offset + last.size == offset) {
      last.size += map[extent].length;
    } else {
      ranges.push_back({offset, map[extent].length});
    }
  }
  return ranges;
}

std::vector<Range> ResyncOrder(std::span<const Range> ranges, const RegionInfo& info,
                               const LogState& log) {
  const RegionGeometry& g = info.geometry;
  const uint64_t head = kJournalOffset + log.head.cursor.position % g.journal_size;
  std::vector<Range> out;
  const auto take = [&](uint64_t begin, uint64_t end) {
    for (const Range& range : ranges) AppendPart(range, begin, end, &out);
  };
  take(0, kHeadOffsets[0]);
  // The ring is sent from the head round to the head again, so that the log comes first and in its
  // order, and then the bytes behind its tail.
  take(head, g.journal_end());
  take(kJournalOffset, head);
  take(kLockOffset + sizeof(uint64_t), kJournalOffset);
  take(g.binding_offset, g.region_size);
  take(kHeadOffsets[0], kLockOffset);
  return out;
}

}  // namespace hyperloop
