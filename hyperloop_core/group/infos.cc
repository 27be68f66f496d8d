#include "group/infos.h"

#include <string>

#include "group/result_area.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

namespace {

Status CheckDatapath(const std::string& who, uint32_t datapath, const GroupGeometry& geometry) {
  if (datapath == static_cast<uint32_t>(geometry.datapath)) return Status::Ok();
  return InvalidArgument(Text(who, " is set up for datapath number ", datapath, ", this node for ",
                              DatapathName(geometry.datapath),
                              "; use the same datapath option on all nodes"));
}

}  // namespace

Status CheckRegion(const rnic::MemoryRegion& region) {
  if (region.addr() % 8 != 0 || region.length() < kMinRegionBytes) {
    return InvalidArgument(Text("a replicated region of ", region.length(), " B at address ",
                                region.addr(), ": at least ", kMinRegionBytes,
                                " B at a multiple of 8 are needed"));
  }
  return Status::Ok();
}

Status CheckPrimaryInfo(const PrimaryInfo& primary, const GroupGeometry& geometry) {
  const PrimaryInfo ours;
  if (primary.version != ours.version) {
    return InvalidArgument(Text("the primary speaks version ", primary.version,
                                " of the group datapath, this program ", ours.version,
                                "; run the same release on all nodes"));
  }
  HL_RETURN_IF_ERROR(CheckDatapath("the primary", primary.datapath, geometry));
  if (primary.group_size != geometry.group_size || primary.window != geometry.window ||
      primary.slots != geometry.slots) {
    return InvalidArgument(
        Text("the primary is set up for ", primary.group_size, " replicas, window ", primary.window,
             ", ", primary.slots, " slots; this node for ", geometry.group_size, ", ",
             geometry.window, ", ", geometry.slots, "; use the same options on all nodes"));
  }
  if (geometry.datapath == Datapath::kFanout) return Status::Ok();  // no ack area
  const uint64_t need = AckAreaBytes(geometry.slots, geometry.group_size);
  if (primary.ack_size < need) {
    return InvalidArgument(Text("the primary's ack area has ", primary.ack_size, " B; ",
                                geometry.slots, " slots need ", need));
  }
  return Status::Ok();
}

Status CheckChain(std::span<const MemberInfo> chain, const GroupGeometry& geometry,
                  uint64_t region_size) {
  if (chain.size() != geometry.group_size) {
    return InvalidArgument(
        Text("a chain of ", chain.size(), " replicas for a group of ", geometry.group_size));
  }
  for (uint32_t i = 0; i < chain.size(); ++i) {
    const MemberInfo& member = chain[i];
    const MemberInfo ours;
    if (member.version != ours.version) {
      return InvalidArgument(Text("replica ", i, " speaks version ", member.version,
                                  " of the group datapath, this program ", ours.version,
                                  "; run the same release on all nodes"));
    }
    HL_RETURN_IF_ERROR(CheckDatapath(Text("replica ", i), member.datapath, geometry));
    if (member.position != i || member.group_size != geometry.group_size ||
        member.window != geometry.window || member.slots != geometry.slots) {
      return InvalidArgument(Text("replica ", i, " is set up as number ", member.position, " of ",
                                  member.group_size, " with window ", member.window, " and ",
                                  member.slots, " slots; expected number ", i, " of ",
                                  geometry.group_size, " with ", geometry.window, " and ",
                                  geometry.slots, "; use the same options on all nodes"));
    }
    if (member.region_size != region_size) {
      return InvalidArgument(Text("the region of replica ", i, " has ", member.region_size,
                                  " B, this node's ", region_size,
                                  " B; all nodes need the same size"));
    }
  }
  return Status::Ok();
}

Status CheckInfos(const PrimaryInfo& primary, std::span<const MemberInfo> chain,
                  const GroupGeometry& geometry, const MemberInfo& own) {
  HL_RETURN_IF_ERROR(CheckPrimaryInfo(primary, geometry));
  HL_RETURN_IF_ERROR(CheckChain(chain, geometry, own.region_size));
  const MemberInfo& listed = chain[own.position];
  if (listed.up_qpn != own.up_qpn || listed.gid != own.gid) {
    return InvalidArgument(
        Text("the chain names another node as replica ", own.position, " than this one"));
  }
  return Status::Ok();
}

MemberInfo InfoOf(const rnic::Device& device, const rnic::MemoryRegion& region, uint32_t position,
                  const GroupGeometry& geometry) {
  MemberInfo info;
  info.datapath = static_cast<uint32_t>(geometry.datapath);
  info.gid = device.gid().raw;
  info.rnic = device.rnic();
  info.region_addr = region.addr();
  info.region_size = region.length();
  info.region_lkey = region.lkey();
  info.region_rkey = region.rkey();
  info.position = position;
  info.group_size = geometry.group_size;
  info.window = geometry.window;
  info.slots = geometry.slots;
  return info;
}

std::pair<rnic::QpAddress, rnic::QpAddress> Neighbours(const PrimaryInfo& primary,
                                                       std::span<const MemberInfo> chain,
                                                       uint32_t position) {
  rnic::QpAddress previous{{primary.gid}, primary.down_qpn};
  if (position > 0) previous = {{chain[position - 1].gid}, chain[position - 1].down_qpn};
  rnic::QpAddress next{{primary.gid}, primary.ack_qpn};
  if (position + 1 < chain.size()) next = {{chain[position + 1].gid}, chain[position + 1].up_qpn};
  return {previous, next};
}

}  // namespace hyperloop
