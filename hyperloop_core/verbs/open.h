// Finding a device, its port and its address.
#pragma once

#include "verbs/context.h"

namespace hyperloop::verbs {

// See OpenDevice.
Result<std::shared_ptr<VerbsContext>> OpenContext(const DeviceOptions& options);

// The value of the verbs enumeration for an MTU in bytes. kInvalidArgument: not an RDMA MTU.
Result<ibv_mtu> MtuFromBytes(uint32_t bytes);

}  // namespace hyperloop::verbs
