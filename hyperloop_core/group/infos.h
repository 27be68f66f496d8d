// How every datapath makes, checks and reads MemberInfo and PrimaryInfo.
#pragma once

#include <chrono>
#include <span>
#include <utility>

#include "group/geometry.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

// Check that an info of another node fits this node. kInvalidArgument names the first difference.
Status CheckPrimaryInfo(const PrimaryInfo& primary, const GroupGeometry& geometry);
Status CheckChain(std::span<const MemberInfo> chain, const GroupGeometry& geometry,
                  uint64_t region_size);
// A member checks the infos of all nodes. `own`: the info that the member itself gave out.
Status CheckInfos(const PrimaryInfo& primary, std::span<const MemberInfo> chain,
                  const GroupGeometry& geometry, const MemberInfo& own);
inline constexpr uint64_t kMinRegionBytes = 64;
// Checks that the region has at least kMinRegionBytes, since a flush reads its first bytes, and
// begins at a multiple of 8, which CAS needs.
Status CheckRegion(const rnic::MemoryRegion& region);

// A member's info without its queue pairs' numbers.
MemberInfo InfoOf(const rnic::Device& device, const rnic::MemoryRegion& region, uint32_t position,
                  const GroupGeometry& geometry);
// How long a replica waits for the next node over a link before it gives up: as long as a device
// allows. The primary's ack_timeout ends the wait earlier, and the primary alone can tell what
// failed.
inline constexpr std::chrono::milliseconds kMemberPatience = rnic::kMaxSilence;
// The addresses to which replica `position` of a chain connects `up` and `down`.
std::pair<rnic::QpAddress, rnic::QpAddress> Neighbours(const PrimaryInfo& primary,
                                                       std::span<const MemberInfo> chain,
                                                       uint32_t position);

}  // namespace hyperloop
