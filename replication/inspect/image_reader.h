// ReadImage copies a region whose owner may be writing meanwhile. Redo makes a consistent prefix of
// the copy.
//
// The head is read first, then what records apply to, then the ring from its far end back to the
// head (so that whatever record is seen, all before it are seen too), then the head again. When the
// head stood still, the ring held every record behind it all the time: each applied byte that is
// newer than the head is redone from there.
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

// Describes an image by what CheckMember finds: everything of NodeStatus that follows from the
// region. `with_data`: its extents were read and are checked, too.
void DescribeImage(std::span<const std::byte> image, bool with_data, NodeStatus* status);

}  // namespace hyperloop
