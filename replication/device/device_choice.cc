#include "device/device_choice.h"

#include <arpa/inet.h>

#include <algorithm>

#include "hyperloop/core/softrnic.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/verbs.h"

namespace hyperloop {

DeviceChoice DeviceChoice::Of(const StoreOptions& options) {
  DeviceChoice choice;
  choice.provider = options.provider;
  choice.device = options.device;
  choice.host = options.host;
  choice.gid_index = options.gid_index;
  choice.mtu = options.mtu;
  choice.traffic_class = options.traffic_class;
  return choice;
}

Result<std::unique_ptr<rnic::Device>> OpenDevice(const DeviceChoice& choice) {
  if (choice.provider == "softrnic") {
    return softrnic::OpenDaemonDevice({choice.device, choice.host});
  }
  if (choice.provider != "verbs") {
    return InvalidArgument(Text("provider ", choice.provider, ": softrnic or verbs"));
  }
  if (choice.traffic_class > 255) {
    return InvalidArgument(Text("traffic class ", choice.traffic_class, ": 0 to 255"));
  }
  return verbs::OpenDevice({.device = choice.device,
                            .gid_index = choice.gid_index,
                            .mtu = choice.mtu,
                            .traffic_class = static_cast<uint8_t>(choice.traffic_class),
                            .service_port = choice.service_port});
}

std::string ServiceHost(const DeviceChoice& choice, const rnic::Device& device) {
  if (choice.provider == "softrnic") return choice.host;
  const rnic::Gid gid = device.gid();
  in6_addr address{};
  std::copy(gid.raw.begin(), gid.raw.end(), address.s6_addr);
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, gid.raw.data() + 12, text, sizeof text);
    return Text(text, ":", choice.service_port);
  }
  inet_ntop(AF_INET6, &address, text, sizeof text);
  return Text("[", text, "]:", choice.service_port);
}

}  // namespace hyperloop
