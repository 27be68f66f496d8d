#include "primary/equalize.h"

#include <algorithm>

#include "files/member_check.h"
#include "files/resync.h"
#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

PushPart PartOf(uint64_t offset, const RegionGeometry& geometry) {
  if (offset >= geometry.journal_end()) return PushPart::kApplied;
  return offset >= kHeadOffsets[0] && offset < kLockOffset ? PushPart::kHead : PushPart::kRing;
}

std::vector<uint64_t> OwnChecksums(std::span<const std::byte> own, const Range& range) {
  return BlockChecksums(own.subspan(range.offset, range.size), kEqualizeBlock);
}

// Adds to `*differing` what of `range` the replica has otherwise.
Status FindDiffering(ReplicaHandle& replica, const Ownership& own_epoch, const Range& range,
                     std::span<const uint64_t> ours, std::vector<Range>* differing) {
  HL_ASSIGN_OR_RETURN(const std::vector<uint64_t> theirs,
                      replica.Checksums(own_epoch, range, kEqualizeBlock));
  const std::vector<Range> found =
      DifferingRanges(ours, theirs, range.offset, range.size, kEqualizeBlock);
  differing->insert(differing->end(), found.begin(), found.end());
  return {};
}

Status PullRange(ReplicaHandle& replica, const Ownership& own_epoch, const Range& range,
                 std::span<std::byte> own) {
  std::vector<Range> differing;
  HL_RETURN_IF_ERROR(
      FindDiffering(replica, own_epoch, range, OwnChecksums(own, range), &differing));
  for (const Range& each : differing) {
    HL_RETURN_IF_ERROR(replica.remote_access()
                           .Read(replica.region(), each.offset, own.subspan(each.offset, each.size))
                           .WithContext(Text("reading from ", replica.name())));
  }
  return {};
}

Result<RegionInfo> ReadInfo(ReplicaHandle& replica) {
  std::vector<std::byte> superblock(sizeof(Superblock));
  HL_RETURN_IF_ERROR(replica.remote_access()
                         .Read(replica.region(), 0, superblock)
                         .WithContext(Text("reading from ", replica.name())));
  return ParseSuperblock(superblock, replica.region().size);
}

Status PushRanges(ReplicaHandle& replica, std::span<const std::byte> own,
                  std::span<const Range> ranges, PushPart part, const RegionGeometry& geometry) {
  for (const Range& range : ranges) {
    if (PartOf(range.offset, geometry) != part) continue;
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

std::vector<PushStep> PushOrder(const std::vector<bool>& cut) {
  std::vector<PushStep> order;
  const auto add = [&](PushPart part, auto of) {
    for (size_t i = 0; i < cut.size(); ++i)
      if (of(i)) order.push_back({part, i});
  };
  const auto all = [](size_t) { return true; };
  add(PushPart::kRing, [&](size_t i) { return !cut[i]; });
  add(PushPart::kApplied, all);
  add(PushPart::kRing, [&](size_t i) { return cut[i]; });
  add(PushPart::kHead, all);
  return order;
}

// The files that the log's records lead to, and not those in the table as it is, say which extents
// are read: what redo does not write itself was executed on the replica, in an extent that its file
// still has.
Status PullRegion(ReplicaHandle& replica, const Ownership& own_epoch, std::span<std::byte> own) {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ReadInfo(replica));
  if (info.geometry.region_size != own.size()) {
    return Corruption(Text(replica.name(), " says that its region has ", info.geometry.region_size,
                           " B, and not ", own.size()));
  }
  HL_RETURN_IF_ERROR(PullRange(replica, own_epoch, {0, info.geometry.data_offset}, own));
  const MemberCheck content = CheckMember(own, info, 0, CheckDepth::kMetadata);
  HL_RETURN_IF_ERROR(content.log_error);
  HL_RETURN_IF_ERROR(content.metadata_error);
  for (const Range& range : RangesInUse(info.geometry, content.table.map)) {
    const uint64_t begin = std::max(range.offset, info.geometry.data_offset);
    const uint64_t end = range.offset + range.size;
    if (begin < end) HL_RETURN_IF_ERROR(PullRange(replica, own_epoch, {begin, end - begin}, own));
  }
  return {};
}

Status PushRegion(std::span<ReplicaHandle* const> replicas, const Ownership& own_epoch,
                  std::span<const std::byte> own, std::span<const Range> in_use,
                  const RegionInfo& info, const LogState& log, const std::vector<bool>& cut) {
  std::vector<std::vector<Range>> differing(replicas.size());
  for (const Range& range : in_use) {
    const std::vector<uint64_t> ours = OwnChecksums(own, range);
    for (size_t i = 0; i < replicas.size(); ++i)
      HL_RETURN_IF_ERROR(FindDiffering(*replicas[i], own_epoch, range, ours, &differing[i]));
  }
  for (std::vector<Range>& ranges : differing) ranges = ResyncOrder(ranges, info, log);
  for (const auto& [part, i] : PushOrder(cut)) {
    HL_RETURN_IF_ERROR(PushRanges(*replicas[i], own, differing[i], part, info.geometry)
                           .WithContext(Text("equalising ", replicas[i]->name())));
  }
  for (ReplicaHandle* replica : replicas) {
    HL_RETURN_IF_ERROR(
        PushLockWord(*replica, own).WithContext(Text("equalising ", replica->name())));
  }
  return {};
}

}  // namespace hyperloop
