// ReadImage copies a region whose owner may be writing meanwhile. Redo makes a consistent prefix of
// the copy.
//
// It reads the head first, then the bytes to which records apply, then the ring from its far end
// back to the head, so that if it sees a record it also sees all earlier ones, then the head again.
// A record may be overwritten in the ring once the head has passed it. So if the log that was read,
// from the first head on, reaches the second one, no record was overwritten before it was read, and
// redo from the first head restores each byte that a record changed meanwhile.
//
// A primary that takes the group changes the region without records, too: between its seal and its
// installation it makes the region equal to another member's. ReadUntakenImage refuses such a copy.
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
// never formatted gives an image of zeros. kBusy: the log was
// overwritten each time.
Result<RegionImage> ReadImage(const RegionFetch& fetch, uint64_t region_size, bool with_data);

using MarkFetch = std::function<NodeMark()>;

// As ReadImage with data. A copy does not count if a primary took the group meanwhile. kBusy also:
// one did each time.
Result<RegionImage> ReadUntakenImage(const RegionFetch& fetch, const MarkFetch& mark,
                                     uint64_t region_size);

// Fills in the parts of NodeStatus that follow from the region, as CheckMember finds them.
// `with_data`: the image has the extents' bytes, which are checked too.
void DescribeImage(std::span<const std::byte> image, bool with_data, NodeStatus* status);

}  // namespace hyperloop
