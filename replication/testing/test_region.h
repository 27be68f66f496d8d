// Small formatted regions and their parts, for tests of journal and files.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "log/log_scan.h"
#include "region/media.h"
#include "region/region_layout.h"

namespace hyperloop {

inline constexpr RegionSecret kTestSecret{4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1};

// A configuration of two replicas, for the first record of an epoch.
inline Configuration TestConfiguration(uint64_t epoch) {
  return {epoch, Uuid{7}, {{Uuid{8}, "127.0.0.1:1"}, {Uuid{9}, "127.0.0.1:2"}}};
}

struct TestRegion {
  std::vector<std::byte> bytes;
  RegionInfo info;

  explicit TestRegion(uint64_t journal_size = 16384, uint32_t extents = 16,
                      uint32_t table_capacity = 16) {
    const uint64_t table = (table_capacity * 128ull + 4095) / 4096 * 4096;
    const uint64_t size = kJournalOffset + journal_size + 4096 + table + 4096 + extents * 4096ull;
    bytes.resize(size);
    const auto geometry = RegionGeometry::Compute(size, journal_size, table_capacity, 4096).value();
    FormatRegion(bytes, Uuid{1, 2, 3}, kTestSecret, geometry).IgnoreError();
    info = ParseSuperblock(bytes, size).value();
  }
};

// Media of a region in plain memory.
class RamMedia : public MediaWriter {
 public:
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void* data, size_t size) override {
    ++persists;
    return on_persist ? on_persist(data, size) : Status();
  }
  uint64_t persists = 0;
  std::function<Status(const void* data, size_t size)> on_persist;  // replaced by tests
};

}  // namespace hyperloop
