// Makes regions equal before a group is armed: the primary's own becomes equal to the chosen
// member's, then every member's becomes equal to the primary's.
//
// What no file holds (inspect/resync.h) is neither read nor compared nor sent. So this takes as
// long as the journal and the files are large, and not the region. The journal's ring is made equal
// as a whole: a stale record behind the log's end could otherwise continue one member's log alone.
//
// A crash at any point leaves each member with a log that holds every acknowledged record, and with
// applied bytes that redo of this log makes right (PushOrder). Each range is durable before the
// next one is sent.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"
#include "log/log_scan.h"
#include "primary/replica_handle.h"

namespace hyperloop {

inline constexpr uint32_t kEqualizeBlock = 16u << 10;

// Makes `own` equal to `replica`'s region. `own` is not durable yet. `seen`: a copy of the region,
// of an earlier moment or of a member that may be equal, or empty. What it has in common with the
// region is not read again. kCorruption: the replica's log or file table is damaged.
Status PullRegion(ReplicaHandle& replica, const Ownership& own_epoch, std::span<std::byte> own,
                  std::span<const std::byte> seen = {});

// The parts of a region that are sent one after the other.
enum class PushPart { kRing, kApplied, kHead };
struct PushStep {
  PushPart part;
  size_t member;
};
// The order in which the parts are sent. A member may have executed records that no acknowledgement
// ever confirmed. As long as they are in its ring, redo completes them. So a member whose log is
// `cut`, because it has records that the new log lacks, keeps its ring until its applied bytes are
// those of the new log. The ring of every other member comes before applied bytes of records that
// the member has not. Heads come last.
std::vector<PushStep> PushOrder(const std::vector<bool>& cut);

// Makes every replica's region equal to `own`, in the ranges `in_use` (RangesInUse). `log`: the log
// in `own`'s ring. `cut`: as PushOrder's, of each replica.
Status PushRegion(std::span<ReplicaHandle* const> replicas, const Ownership& own_epoch,
                  std::span<const std::byte> own, std::span<const Range> in_use,
                  const RegionInfo& info, const LogState& log, const std::vector<bool>& cut);

}  // namespace hyperloop
