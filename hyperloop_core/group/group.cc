// The names of the datapaths, and the functions that make both ends.
#include "hyperloop/core/group.h"

#include <array>
#include <utility>

#include "group/chain_group.h"
#include "group/cpu_member.h"
#include "group/cpu_message.h"
#include "group/datapaths.h"
#include "group/fanout.h"
#include "group/infos.h"
#include "group/offload_member.h"
#include "group/patch_messages.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

namespace {

constexpr std::array kDatapaths = {Datapath::kOffload, Datapath::kFanout, Datapath::kCpuPolling,
                                   Datapath::kCpuEvent};

}  // namespace

Result<Datapath> ParseDatapath(std::string_view name) {
  for (const Datapath datapath : kDatapaths) {
    if (name == DatapathName(datapath)) return datapath;
  }
  return InvalidArgument(
      Text("datapath '", name, "' is unknown; possible: offload, fanout, cpu-polling, cpu-event"));
}

std::string_view DatapathName(Datapath datapath) {
  switch (datapath) {
    case Datapath::kOffload:
      return "offload";
    case Datapath::kFanout:
      return "fanout";
    case Datapath::kCpuPolling:
      return "cpu-polling";
    case Datapath::kCpuEvent:
      return "cpu-event";
  }
  return "unknown";
}

std::string_view WaitModeName(WaitMode wait) {
  switch (wait) {
    case WaitMode::kPoll:
      return "poll";
    case WaitMode::kEvent:
      return "event";
    case WaitMode::kHybrid:
      return "hybrid";
  }
  return "unknown";
}

Result<std::unique_ptr<Member>> Member::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const MemberOptions& options) {
  HL_ASSIGN_OR_RETURN(
      const GroupGeometry geometry,
      GroupGeometry::For(options.datapath, options.group_size, options.window, options.slots));
  return MakeMember(device, pd, region, options, SlotProgram::For(geometry));
}

Result<std::unique_ptr<Member>> MakeMember(rnic::Device& device, rnic::ProtectionDomain& pd,
                                           rnic::MemoryRegion& region, const MemberOptions& options,
                                           const SlotProgram& program) {
  const GroupGeometry& geometry = program.geometry;
  if (options.position >= geometry.group_size) {
    return InvalidArgument(
        Text("position ", options.position, " in a chain of ", geometry.group_size, " replicas"));
  }
  HL_RETURN_IF_ERROR(CheckRegion(region));
  switch (geometry.datapath) {
    case Datapath::kOffload:
      return OffloadMember::Create(device, pd, region, options.position, program);
    case Datapath::kFanout:
      return FanoutMember::Create(device, pd, region, options.position, geometry);
    case Datapath::kCpuPolling:
    case Datapath::kCpuEvent:
      return CpuMember::Create(device, pd, region, options, geometry, CpuMember::Driver::kThread);
  }
  return InvalidArgument("unknown datapath");
}

Result<std::unique_ptr<Group>> Group::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                             rnic::MemoryRegion& region,
                                             const GroupOptions& options, uint32_t group_size) {
  HL_ASSIGN_OR_RETURN(
      const GroupGeometry geometry,
      GroupGeometry::For(options.datapath, group_size, options.window, options.slots));
  return MakeGroup(device, pd, region, options, SlotProgram::For(geometry));
}

Result<std::unique_ptr<Group>> MakeGroup(rnic::Device& device, rnic::ProtectionDomain& pd,
                                         rnic::MemoryRegion& region, const GroupOptions& options,
                                         const SlotProgram& program) {
  const GroupGeometry& geometry = program.geometry;
  std::unique_ptr<Messages> messages;
  switch (geometry.datapath) {
    case Datapath::kFanout:
      return FanoutGroup::Create(device, pd, region, options, geometry);
    case Datapath::kOffload:
      messages = std::make_unique<PatchMessages>(program);
      break;
    case Datapath::kCpuPolling:
    case Datapath::kCpuEvent:
      messages = std::make_unique<CpuMessages>(geometry,
                                               reinterpret_cast<const std::byte*>(region.addr()));
      break;
  }
  return ChainGroup::Create(device, pd, region, options, program, std::move(messages));
}

Result<Ticket> Group::Flush(uint64_t offset, uint64_t size) {
  if (size == 0 || offset > region_size() || size > region_size() - offset) {
    return InvalidArgument(Text("gFLUSH of ", size, " B at offset ", offset,
                                ": it must name at least 1 B inside the region of ", region_size(),
                                " B"));
  }
  return Flush();
}

}  // namespace hyperloop
