#include <algorithm>

#include "region/record.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMinJournal = 16384;
constexpr uint64_t kMaxJournal = 8ull << 30;
constexpr uint64_t kMinExtents = 8;
constexpr uint64_t kMaxRecord = (1u << 20) + (64u << 10);

uint64_t PageUp(uint64_t n) { return (n + kPage - 1) & ~(kPage - 1); }

std::string Bytes(uint64_t n) { return std::to_string(n) + " B"; }

// The bytes of the longest record. They are at most a quarter of the ring, so that a pad, a record
// and the reserve for statements always fit.
uint32_t MaxRecord(uint64_t journal_size) {
  return static_cast<uint32_t>(std::min(journal_size / 4, kMaxRecord) & ~(kRecordAlign - 1));
}

Status CheckInputs(uint64_t region_size, uint64_t journal_size, uint32_t table_capacity,
                   uint32_t extent_size) {
  if (region_size % kPage != 0) {
    return InvalidArgument("region size " + Bytes(region_size) + " is not a multiple of 4096");
  }
  if (region_size > kMaxRegionSize) {
    return InvalidArgument("region size " + Bytes(region_size) + " is beyond the limit of " +
                           Bytes(kMaxRegionSize) + " (15 GiB: one libpmemobj allocation)");
  }
  if (journal_size % kPage != 0 || journal_size < kMinJournal || journal_size > kMaxJournal) {
    return InvalidArgument("journal size " + Bytes(journal_size) +
                           " is not a multiple of 4096 from " + Bytes(kMinJournal) + " to " +
                           Bytes(kMaxJournal));
  }
  if (table_capacity < 8 || table_capacity > kMaxTableCapacity) {
    return InvalidArgument("table capacity of " + std::to_string(table_capacity) +
                           " files is not from 8 to " + std::to_string(kMaxTableCapacity));
  }
  if (!std::has_single_bit(extent_size) || extent_size < kPage || extent_size > (1u << 30)) {
    return InvalidArgument("extent size " + Bytes(extent_size) +
                           " is not a power of two from 4096 to 1 GiB");
  }
  return {};
}

}  // namespace

uint64_t RegionGeometry::LeastRegion(uint64_t journal_size, uint32_t table_capacity,
                                     uint32_t extent_size) {
  return kJournalOffset + journal_size + kPage +
         PageUp(uint64_t{table_capacity} * sizeof(TableEntry)) +
         PageUp(PageUp(kMinExtents * sizeof(MapEntry)) + kMinExtents * uint64_t{extent_size});
}

Result<RegionGeometry> RegionGeometry::Compute(uint64_t region_size, uint64_t journal_size,
                                               uint32_t table_capacity, uint32_t extent_size) {
  HL_RETURN_IF_ERROR(CheckInputs(region_size, journal_size, table_capacity, extent_size));
  RegionGeometry g;
  g.region_size = region_size;
  g.journal_size = journal_size;
  g.table_capacity = table_capacity;
  g.extent_size = extent_size;
  g.binding_offset = kJournalOffset + journal_size;
  g.table_offset = g.binding_offset + kPage;
  g.map_offset = g.table_offset + PageUp(uint64_t{table_capacity} * sizeof(TableEntry));
  const uint64_t needed = LeastRegion(journal_size, table_capacity, extent_size);
  if (region_size < needed) {
    return InvalidArgument("region of " + Bytes(region_size) + " is too small: a journal of " +
                           Bytes(journal_size) + ", a table of " + std::to_string(table_capacity) +
                           " files and " + std::to_string(kMinExtents) + " extents of " +
                           Bytes(extent_size) + " need " + Bytes(needed) +
                           "; make the region larger or the journal smaller");
  }
  uint64_t extents = (region_size - g.map_offset) / (extent_size + sizeof(MapEntry));
  while (g.map_offset + PageUp(extents * sizeof(MapEntry)) + extents * extent_size > region_size)
    --extents;
  g.extent_count = static_cast<uint32_t>(extents);
  g.data_offset = g.map_offset + PageUp(extents * sizeof(MapEntry));
  g.reserved_extents = static_cast<uint32_t>(std::clamp<uint64_t>(extents / 16, 4, 128));
  g.max_record = MaxRecord(journal_size);
  // One record must be able to free all extents of a file: at worst it holds the whole map.
  const uint64_t largest = RecordLength(8, extents * sizeof(MapEntry) + 4 * sizeof(TableEntry));
  if (g.max_record < largest) {
    return InvalidArgument("journal of " + Bytes(journal_size) + " is too small for a region of " +
                           Bytes(region_size) + ": " + std::to_string(extents) +
                           " extents need a journal of " + Bytes(PageUp(4 * AlignRecord(largest))));
  }
  return g;
}

}  // namespace hyperloop
