// Makes the ends of a group from a slot program, for Group::Create and Member::Create and for tests
// that change the program. Datapath offload runs the program; the others use its geometry alone.
// Datapath, group size, window and slots come from the geometry, not from the options.
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
