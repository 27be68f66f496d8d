// CheckOperation: the rules that a primary checks before it submits an operation, and that a
// replica's CPU checks before it runs one.
#pragma once

#include "hyperloop/core/group.h"

namespace hyperloop {

// kInvalidArgument: a part leaves the region or is larger than kMaxPart, the CAS is not aligned or
// names replicas that are not there, or parts overlap that must not.
Status CheckOperation(const Operation& operation, uint64_t region_size, uint32_t group_size);

}  // namespace hyperloop
