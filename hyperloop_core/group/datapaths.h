// The ends of a group for a program made by the caller: Group::Create and Member::Create, and tests
// that change the program. `program.datapath` and `group_size` count, not the options'.
#pragma once

#include <memory>

#include "group/slot_program.h"
#include "hyperloop/core/group.h"

namespace hyperloop {

Result<std::unique_ptr<Member>> MakeMember(rnic::Device& device, rnic::ProtectionDomain& pd,
                                           rnic::MemoryRegion& region, const MemberOptions& options,
                                           const SlotProgram& program);
Result<std::unique_ptr<Group>> MakeGroup(rnic::Device& device, rnic::ProtectionDomain& pd,
                                         rnic::MemoryRegion& region, const GroupOptions& options,
                                         const SlotProgram& program);

}  // namespace hyperloop
