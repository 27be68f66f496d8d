// MemberInfo and PrimaryInfo: made, checked and read the same way by every datapath.
#pragma once

#include <chrono>
#include <span>
#include <utility>

#include "group/geometry.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

// What both ends check of each other's infos. kInvalidArgument names the first difference.
Status CheckPrimaryInfo(const PrimaryInfo& primary, const GroupGeometry& geometry);
Status CheckChain(std::span<const MemberInfo> chain, const GroupGeometry& geometry,
                  uint64_t region_size);
// A member's checks of all others; `own`: the info that it gave out.
Status CheckPeers(const PrimaryInfo& primary, std::span<const MemberInfo> chain,
                  const GroupGeometry& geometry, const MemberInfo& own);
inline constexpr uint64_t kMinRegionBytes = 64;
// Offset 0 must be 8 B aligned for CAS, and a flush reads its first bytes.
Status CheckRegion(const rnic::MemoryRegion& region);

// A member's info without its queue pairs' numbers.
MemberInfo InfoOf(const rnic::Device& device, const rnic::MemoryRegion& region, uint32_t position,
                  const GroupGeometry& geometry);
// How long a replica waits for the next node over a link: as long as it can. The primary's
// ack_timeout decides, and the primary alone can say what failed.
inline constexpr std::chrono::milliseconds kMemberPatience = rnic::kMaxSilence;
// In a chain: to whom replica `position` connects `up` and `down`.
std::pair<rnic::QpAddress, rnic::QpAddress> Neighbours(const PrimaryInfo& primary,
                                                       std::span<const MemberInfo> chain,
                                                       uint32_t position);

}  // namespace hyperloop
