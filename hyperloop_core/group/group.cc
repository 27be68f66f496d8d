// What is common to all datapaths.
#include "hyperloop/core/group.h"

#include "group/offload_group.h"
#include "group/offload_member.h"
#include "group/slot_program.h"
#include "group/text.h"

namespace hyperloop {

Result<Datapath> ParseDatapath(std::string_view name) {
  if (name == "offload") return Datapath::kOffload;
  return InvalidArgument(Concat("datapath '", name, "' is unknown; possible: offload"));
}

std::string_view DatapathName(Datapath datapath) {
  switch (datapath) {
    case Datapath::kOffload:
      return "offload";
  }
  return "unknown";
}

Result<std::unique_ptr<Member>> Member::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const MemberOptions& options) {
  HL_ASSIGN_OR_RETURN(const SlotProgram program,
                      SlotProgram::For(options.group_size, options.window, options.slots));
  return OffloadMember::Create(device, pd, region, options.position, program);
}

Result<std::unique_ptr<Group>> Group::Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                             rnic::MemoryRegion& region,
                                             const GroupOptions& options, uint32_t group_size) {
  HL_ASSIGN_OR_RETURN(const SlotProgram program,
                      SlotProgram::For(group_size, options.window, options.slots));
  return OffloadGroup::Create(device, pd, region, options, program);
}

Result<Ticket> Group::Flush(uint64_t offset, uint64_t size) {
  if (size == 0 || offset > region_size() || size > region_size() - offset) {
    return InvalidArgument(Concat("gFLUSH of ", size, " B at offset ", offset,
                                  ": it must name at least 1 B inside the region of ",
                                  region_size(), " B"));
  }
  return Flush();
}

}  // namespace hyperloop
