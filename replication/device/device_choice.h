// DeviceChoice: the RDMA device that a process uses, as options and command lines name it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

struct DeviceChoice {
  std::string provider = "softrnic";  // or "verbs"
  std::string device;      // softrnic: socket of hyperloop-rnicd; verbs: NAME, NAME:PORT or empty
  std::string host;        // softrnic: the emulated host
  int32_t gid_index = -1;  // verbs: see verbs::DeviceOptions, as are the following
  uint32_t mtu = 0;
  uint32_t traffic_class = 0;
  uint16_t service_port = 0;

  static DeviceChoice Of(const StoreOptions& options);
};

// kInvalidArgument: the provider is unknown, or a value does not fit it. Else as the provider's own
// function.
Result<std::unique_ptr<rnic::Device>> OpenDevice(const DeviceChoice& choice);

// The host that a tool passes to ConnectService to reach services that `device`, opened by
// `choice`, publishes. softrnic: the emulated host. verbs: ADDRESS:PORT.
std::string ServiceHost(const DeviceChoice& choice, const rnic::Device& device);

}  // namespace hyperloop
