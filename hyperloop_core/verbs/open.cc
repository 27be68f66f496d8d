#include "verbs/open.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "verbs/device_name.h"

namespace hyperloop::verbs {
namespace {

// --- devices

struct DeviceList {
  explicit DeviceList(const Library& library)
      : lib(library), devices(library.ibv_get_device_list(&count)), error(errno) {}
  ~DeviceList() {
    if (devices != nullptr) lib.ibv_free_device_list(devices);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::string Names() const {
    std::string names;
    for (int i = 0; i < count; ++i) {
      names += (i == 0 ? "" : ", ") + std::string(lib.ibv_get_device_name(devices[i]));
    }
    return names;
  }

  const Library& lib;
  int count = 0;
  ibv_device** devices;
  int error;
};

Result<ibv_context*> OpenByName(const Library& lib, ibv_device* device) {
  const std::string name = lib.ibv_get_device_name(device);
  if (ibv_context* context = lib.ibv_open_device(device); context != nullptr) return context;
  const int error = errno;
  // libibverbs does not tell why it could not open the file.
  const std::string file = std::string("/dev/infiniband/") + device->dev_name;
  if (access(file.c_str(), R_OK | W_OK) == 0) {
    return FromErrno(error, "opening RDMA device " + name);
  }
  if (errno == ENOENT) {
    return NotFound("RDMA device " + name + ": there is no " + file +
                    "; load the kernel module ib_uverbs (a container: --device /dev/infiniband)");
  }
  return PermissionDenied("RDMA device " + name + ": " + std::strerror(errno) +
                          ". This user needs read and write permission on " + file);
}

// --- ports

Result<ibv_port_attr> QueryPort(const Library& lib, ibv_context* context, uint8_t number) {
  ibv_port_attr attr{};
  const int error =
      (lib.ibv_query_port)(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&attr));
  if (error != 0) return FromErrno(error, "port " + std::to_string(number));
  return attr;
}

Result<uint8_t> ChoosePort(const Library& lib, ibv_context* context, const std::string& device,
                           uint8_t wanted) {
  ibv_device_attr attr{};
  if (const int error = lib.ibv_query_device(context, &attr); error != 0) {
    return FromErrno(error, device + ": ibv_query_device");
  }
  if (wanted > attr.phys_port_cnt) {
    return NotFound("RDMA device " + device + " has no port " + std::to_string(wanted) +
                    "; its ports: 1 to " + std::to_string(attr.phys_port_cnt));
  }
  for (unsigned i = 1; i <= attr.phys_port_cnt; ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (wanted != 0 && number != wanted) continue;
    HL_ASSIGN_OR_RETURN(const ibv_port_attr port, QueryPort(lib, context, number));
    if (port.state == IBV_PORT_ACTIVE) return number;
  }
  return Unavailable("RDMA device " + device + ": " +
                     (wanted == 0 ? "no port" : "port " + std::to_string(wanted)) +
                     " is not active; look at ibv_devinfo, and at the network interface below it "
                     "(ip link set … up)");
}

// --- addresses

std::string GidText(const rnic::Gid& gid) {
  std::string text;
  for (size_t i = 0; i < gid.raw.size(); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    if (i > 0 && i % 2 == 0) text += ':';
    text += {kDigits[gid.raw[i] >> 4], kDigits[gid.raw[i] & 15]};
  }
  return text;
}

bool IsIpv4(const rnic::Gid& gid) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.raw.begin());
}
bool IsLinkLocal(const rnic::Gid& gid) { return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80; }

std::optional<rnic::Gid> ReadGid(const Library& lib, ibv_context* context, uint8_t port,
                                 int index) {
  ibv_gid gid{};
  if (lib.ibv_query_gid(context, port, index, &gid) != 0) return std::nullopt;
  rnic::Gid out;
  std::copy(std::begin(gid.raw), std::end(gid.raw), out.raw.begin());
  if (out == rnic::Gid{}) return std::nullopt;
  return out;
}

bool IsRoceV2(const std::string& device, uint8_t port, int index) {
  std::ifstream file("/sys/class/infiniband/" + device + "/ports/" + std::to_string(port) +
                     "/gid_attrs/types/" + std::to_string(index));
  std::string type;
  return std::getline(file, type) && type == "RoCE v2";
}

struct Address {
  uint8_t index;
  rnic::Gid gid;
};

Result<Address> ChooseGid(const Library& lib, ibv_context* context, const std::string& device,
                          uint8_t port, int length, int wanted) {
  std::string seen;
  std::optional<Address> best;
  int best_score = -1;
  for (int i = 0; i < std::min(length, 256); ++i) {
    const std::optional<rnic::Gid> gid = ReadGid(lib, context, port, i);
    if (!gid) continue;
    const Address address{static_cast<uint8_t>(i), *gid};
    if (wanted == i) return address;
    seen += (seen.empty() ? "" : ", ") + std::to_string(i) + " = " + GidText(*gid);
    const bool v2 = IsRoceV2(device, port, i);
    const int score = !v2 ? 0 : IsIpv4(*gid) ? 3 : IsLinkLocal(*gid) ? 1 : 2;
    if (score > best_score) {
      best = address;
      best_score = score;
    }
  }
  const std::string where = "RDMA device " + device + ", port " + std::to_string(port);
  if (wanted >= 0) {
    return NotFound(where + " has no GID of index " + std::to_string(wanted) +
                    (seen.empty() ? "" : "; there are " + seen));
  }
  if (!best) {
    return NotFound(where +
                    " has no address; give the network interface below it one (ip address add …)");
  }
  return *best;
}

// Closes the device, unless somebody has taken it over.
class OpenedDevice {
 public:
  OpenedDevice(const Library& library, ibv_context* context) : lib_(library), context_(context) {}
  ~OpenedDevice() {
    if (context_ != nullptr) lib_.ibv_close_device(context_);
  }
  OpenedDevice(const OpenedDevice&) = delete;
  OpenedDevice& operator=(const OpenedDevice&) = delete;
  ibv_context* get() const { return context_; }
  ibv_context* Release() { return std::exchange(context_, nullptr); }

 private:
  const Library& lib_;
  ibv_context* context_;
};

Result<std::shared_ptr<VerbsContext>> OpenOne(const Library& lib, ibv_device* device,
                                              uint8_t wanted_port, const DeviceOptions& options) {
  const std::string name = lib.ibv_get_device_name(device);
  HL_ASSIGN_OR_RETURN(ibv_context* const raw, OpenByName(lib, device));
  OpenedDevice opened(lib, raw);
  HL_ASSIGN_OR_RETURN(const uint8_t number, ChoosePort(lib, raw, name, wanted_port));
  HL_ASSIGN_OR_RETURN(const ibv_port_attr port, QueryPort(lib, raw, number));
  if (port.link_layer == IBV_LINK_LAYER_INFINIBAND) {
    return NotSupported(
        "RDMA device " + name + ", port " + std::to_string(number) +
        ", is on an InfiniBand network; provider verbs connects over Ethernet (RoCE)");
  }
  HL_ASSIGN_OR_RETURN(const Address address,
                      ChooseGid(lib, raw, name, number, port.gid_tbl_len, options.gid_index));
  HL_ASSIGN_OR_RETURN(auto guard, ForkDetector::Create());
  auto context = std::make_shared<VerbsContext>(
      lib, std::move(guard), opened.Release(),
      VerbsContext::Port{name, number, address.index, address.gid, port.active_mtu}, options);
  HL_RETURN_IF_ERROR(context->QueryAttributes());
  return context;
}

}  // namespace

Result<ibv_mtu> MtuFromBytes(uint32_t bytes) {
  switch (bytes) {
    case 256:
      return IBV_MTU_256;
    case 512:
      return IBV_MTU_512;
    case 1024:
      return IBV_MTU_1024;
    case 2048:
      return IBV_MTU_2048;
    case 4096:
      return IBV_MTU_4096;
    default:
      return InvalidArgument("mtu " + std::to_string(bytes) +
                             ": an RDMA device takes 256, 512, 1024, 2048 or 4096");
  }
}

Result<std::shared_ptr<VerbsContext>> OpenContext(const DeviceOptions& options) {
  HL_ASSIGN_OR_RETURN(const DeviceName wanted, ParseDeviceName(options.device));
  if (options.gid_index < -1 || options.gid_index > 255) {
    return InvalidArgument("GID index " + std::to_string(options.gid_index) + ": -1 to 255");
  }
  if (options.mtu != 0) HL_RETURN_IF_ERROR(MtuFromBytes(options.mtu).status());
  HL_ASSIGN_OR_RETURN(const Library* const lib, Library::Load());
  const DeviceList list(*lib);
  if (list.devices == nullptr || list.count == 0) {
    const std::string reason =
        list.devices == nullptr ? std::string(" (") + std::strerror(list.error) + ")" : "";
    return NotSupported("this machine has no RDMA device" + reason +
                        "; load its driver, or make a Soft-RoCE one: rdma link add rxe0 type rxe "
                        "netdev eth0 (kernel module rdma_rxe)");
  }
  Status last = NotFound("there is no RDMA device " + wanted.name + "; there are " + list.Names());
  for (int i = 0; i < list.count; ++i) {
    if (!wanted.name.empty() && wanted.name != lib->ibv_get_device_name(list.devices[i])) continue;
    auto opened = OpenOne(*lib, list.devices[i], wanted.port, options);
    if (opened.ok()) return opened;
    last = opened.status();
  }
  return last;
}

}  // namespace hyperloop::verbs
