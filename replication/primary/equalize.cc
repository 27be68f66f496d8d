#include "primary/equalize.h"

#include "files/resync.h"
#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

// The stages of sending, in their order. Each is done on all members before the next one begins.
enum Stage { kRing, kApplied, kHead, kStages };

Stage StageOf(uint64_t offset, const RegionGeometry& geometry) {
  if (offset >= geometry.journal_end()) return kApplied;
  return offset >= kHeadOffsets[0] && offset < kLockOffset ? kHead : kRing;
}

Status PushRanges(ReplicaHandle& replica, std::span<const std::byte> own,
                  std::span<const Range> ranges, Stage stage, const RegionGeometry& geometry) {
  for (const Range& range : ranges) {
    if (StageOf(range.offset, geometry) != stage) continue;
    HL_RETURN_IF_ERROR(replica.remote_access().Write(replica.region(), range.offset,
                                                     own.subspan(range.offset, range.size)));
    HL_RETURN_IF_ERROR(replica.remote_access().Flush(replica.region(), range.offset));
  }
  return {};
}

// ResyncOrder does not send the lock word, in which members may differ after a lock that was cut
// short.
Status PushLockWord(ReplicaHandle& replica, std::span<const std::byte> own) {
  HL_RETURN_IF_ERROR(replica.remote_access().Write(replica.region(), kLockOffset,
                                                   own.subspan(kLockOffset, sizeof(uint64_t))));
  return replica.remote_access().Flush(replica.region(), kLockOffset);
}

}  // namespace

Status PullRegion(ReplicaHandle& replica, const Ownership& own_epoch, std::span<std::byte> own) {
  HL_ASSIGN_OR_RETURN(const std::vector<uint64_t> theirs,
                      replica.Checksums(own_epoch, kEqualizeBlock));
  const std::vector<uint64_t> ours = BlockChecksums(own, kEqualizeBlock);
  for (const Range& range : DifferingRanges(ours, theirs, 0, own.size(), kEqualizeBlock)) {
    HL_RETURN_IF_ERROR(
        replica.remote_access()
            .Read(replica.region(), range.offset, own.subspan(range.offset, range.size))
            .WithContext(Text("reading from ", replica.name())));
  }
  return {};
}

Status PushRegion(std::span<ReplicaHandle* const> replicas, const Ownership& own_epoch,
                  std::span<const std::byte> own, const RegionInfo& info, const LogState& log) {
  const std::vector<uint64_t> ours = BlockChecksums(own, kEqualizeBlock);
  std::vector<std::vector<Range>> ranges;
  for (ReplicaHandle* replica : replicas) {
    HL_ASSIGN_OR_RETURN(const std::vector<uint64_t> theirs,
                        replica->Checksums(own_epoch, kEqualizeBlock));
    ranges.push_back(
        ResyncOrder(DifferingRanges(ours, theirs, 0, own.size(), kEqualizeBlock), info, log));
  }
  for (int stage = 0; stage < kStages; ++stage) {
    for (size_t i = 0; i < replicas.size(); ++i) {
      HL_RETURN_IF_ERROR(
          PushRanges(*replicas[i], own, ranges[i], static_cast<Stage>(stage), info.geometry)
              .WithContext(Text("equalising ", replicas[i]->name())));
    }
  }
  for (ReplicaHandle* replica : replicas) {
    HL_RETURN_IF_ERROR(
        PushLockWord(*replica, own).WithContext(Text("equalising ", replica->name())));
  }
  return {};
}

}  // namespace hyperloop
