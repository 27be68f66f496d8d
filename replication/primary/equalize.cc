#include "primary/equalize.h"

#include <algorithm>

#include "hyperloop/core/text.h"
#include "inspect/member_check.h"
#include "inspect/resync.h"
#include "primary/asking.h"

namespace hyperloop {
namespace {

PushPart PartOf(uint64_t offset, const RegionGeometry& geometry) {
  if (offset >= geometry.journal_end()) return PushPart::kApplied;
  return offset >= kHeadOffsets[0] && offset < kLockOffset ? PushPart::kHead : PushPart::kRing;
}

std::vector<uint64_t> OwnChecksums(std::span<const std::byte> own, const Range& range) {
  return BlockChecksums(own.subspan(range.offset, range.size), kEqualizeBlock);
}

using Checksums = std::vector<std::vector<uint64_t>>;  // by range

// The checksums of these ranges at each of the replicas, and behind them those of `own`.
Result<std::vector<Checksums>> AllChecksums(std::span<ReplicaHandle* const> replicas,
                                            const Ownership& own_epoch,
                                            std::span<const std::byte> own,
                                            std::span<const Range> ranges) {
  const auto of = [&](size_t i) -> Result<Checksums> {
    Checksums sums;
    for (const Range& range : ranges) {
      if (i == replicas.size()) {
        sums.push_back(OwnChecksums(own, range));
      } else {
        HL_ASSIGN_OR_RETURN(sums.emplace_back(),
                            replicas[i]->Checksums(own_epoch, range, kEqualizeBlock));
      }
    }
    return sums;
  };
  std::vector<Checksums> all;
  for (Result<Checksums>& each : AtOnce(replicas.size() + 1, of)) {
    HL_RETURN_IF_ERROR(each.status());
    all.push_back(std::move(each).value());
  }
  return all;
}

std::vector<Range> Differing(const Checksums& ours, const Checksums& theirs,
                             std::span<const Range> ranges) {
  std::vector<Range> differing;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::vector<Range> found =
        DifferingRanges(ours[i], theirs[i], ranges[i].offset, ranges[i].size, kEqualizeBlock);
    differing.insert(differing.end(), found.begin(), found.end());
  }
  return differing;
}

// Makes these ranges of `own` equal to the replica's. `seen`: as PullRegion's.
Status PullRanges(ReplicaHandle& replica, const Ownership& own_epoch, std::span<const Range> ranges,
                  std::span<std::byte> own, std::span<const std::byte> seen) {
  ReplicaHandle* const one[] = {&replica};
  HL_ASSIGN_OR_RETURN(const std::vector<Checksums> sums,
                      AllChecksums(one, own_epoch, seen.empty() ? own : seen, ranges));
  if (!seen.empty())
    for (const Range& each : ranges)
      std::ranges::copy(seen.subspan(each.offset, each.size), own.begin() + each.offset);
  for (const Range& each : Differing(sums[1], sums[0], ranges)) {
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
Status PullRegion(ReplicaHandle& replica, const Ownership& own_epoch, std::span<std::byte> own,
                  std::span<const std::byte> seen) {
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ReadInfo(replica));
  if (info.geometry.region_size != own.size()) {
    return Corruption(Text(replica.name(), " says that its region has ", info.geometry.region_size,
                           " B, and not ", own.size()));
  }
  if (seen.size() != own.size()) seen = {};
  const Range front[] = {{0, info.geometry.data_offset}};
  HL_RETURN_IF_ERROR(PullRanges(replica, own_epoch, front, own, seen));
  const MemberCheck content = CheckMember(own, info, 0, CheckDepth::kMetadata);
  HL_RETURN_IF_ERROR(content.log_error);
  HL_RETURN_IF_ERROR(content.metadata_error);
  std::vector<Range> extents;
  for (const Range& range : RangesInUse(info.geometry, content.table.map)) {
    const uint64_t begin = std::max(range.offset, info.geometry.data_offset);
    const uint64_t end = range.offset + range.size;
    if (begin < end) extents.push_back({begin, end - begin});
  }
  return PullRanges(replica, own_epoch, extents, own, seen);
}

Status PushRegion(std::span<ReplicaHandle* const> replicas, const Ownership& own_epoch,
                  std::span<const std::byte> own, std::span<const Range> in_use,
                  const RegionInfo& info, const LogState& log, const std::vector<bool>& cut) {
  HL_ASSIGN_OR_RETURN(const std::vector<Checksums> sums,
                      AllChecksums(replicas, own_epoch, own, in_use));
  std::vector<std::vector<Range>> differing;
  for (size_t i = 0; i < replicas.size(); ++i)
    differing.push_back(ResyncOrder(Differing(sums.back(), sums[i], in_use), info, log));
  // One step after the other, so that a cut ends within one step of one replica.
  for (const auto& [part, i] : PushOrder(cut)) {
    HL_RETURN_IF_ERROR(PushRanges(*replicas[i], own, differing[i], part, info.geometry)
                           .WithContext(Text("equalising ", replicas[i]->name())));
  }
  return AllAtOnce(replicas.size(), [&](size_t i) {
    return PushLockWord(*replicas[i], own).WithContext(Text("equalising ", replicas[i]->name()));
  });
}

}  // namespace hyperloop
