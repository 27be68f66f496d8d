// The software RNIC as a provider: a device served by hyperloop-rnicd, or one embedded in this
// process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hyperloop/core/rnic.h"

namespace hyperloop::softrnic {

struct DaemonAddress {
  std::string socket_path;  // of hyperloop-rnicd
  std::string host;  // emulated host to attach to; created on first use; [A-Za-z0-9._-]{1,63}
};

// Attaches this process to an emulated host of a running hyperloop-rnicd. kUnavailable: nobody
// listens there (the message names the command that starts one). kPermissionDenied: who listens is
// neither this user nor root, and nothing was handed to it; or the socket does not let this user
// in.
Result<std::unique_ptr<rnic::Device>> OpenDaemonDevice(const DaemonAddress& address);

}  // namespace hyperloop::softrnic
