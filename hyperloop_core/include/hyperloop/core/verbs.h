// libibverbs and librdmacm as a provider: RC queue pairs of any RoCE device (Soft-RoCE, ConnectX
// …).
//
// Both libraries are loaded when the first device is opened, not before: who does not use this
// provider needs neither. No cross-channel operations (Caps::cross_channel is false). What differs
// from the software RNIC is in docs/rnic.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "hyperloop/core/rnic.h"

namespace hyperloop::verbs {

struct DeviceOptions {
  // "NAME" or "NAME:PORT" as ibv_devices shows it. Empty: the first device with an active port;
  // without PORT: its first active port.
  std::string device = "";
  // Index in the port's GID table. −1: the first RoCE v2 entry with an IPv4 address, else the first
  // RoCE v2 entry that is not link-local, else the first entry.
  int32_t gid_index = -1;
  // For queue pairs whose QpAttr leaves them 0.
  uint32_t mtu = 0;  // 256, 512, 1024, 2048 or 4096 bytes; 0: the port's
  uint8_t traffic_class = 0;
  // Device::Publish listens there, through librdmacm, at the GID's IP address; 0: Publish is
  // refused. It may equal a TCP port in use: RDMA ports are a space of their own.
  uint16_t service_port = 0;
};

// kNotSupported: libibverbs or librdmacm is not installed, the kernel has no RDMA, or the port's
// link layer is InfiniBand. kNotFound: no such device, port or GID; the message lists what there
// is. kPermissionDenied: /dev/infiniband may not be opened. kUnavailable: no port is active.
Result<std::unique_ptr<rnic::Device>> OpenDevice(const DeviceOptions& options);

}  // namespace hyperloop::verbs
