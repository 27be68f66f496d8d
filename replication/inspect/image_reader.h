// ReadImage copies a region whose owner may be writing meanwhile. Redo makes a consistent prefix of
// the copy.
//
// It reads the head first, then the bytes to which records apply, then the ring from its far end
// back to the head, so that if it sees a record it also sees all earlier ones, then the head again.
// If the head did not move, the ring held every record behind it all the time, so redo restores
// each applied byte that is newer than the head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop {

// Reads region bytes at an offset.
using RegionFetch = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// `with_data`: extents in use too; else they read as zero (status needs none). A region that was
// never formatted gives an image of zeros. kBusy: the head moved each time.
Result<RegionImage> ReadImage(const RegionFetch& fetch, uint64_t region_size, bool with_data);

// Fills in the parts of NodeStatus that follow from the region, as CheckMember finds them.
// `with_data`: the image has the extents' bytes, which are checked too.
void DescribeImage(std::span<const std::byte> image, bool with_data, NodeStatus* status);

}  // namespace hyperloop
