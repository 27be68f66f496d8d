// The C interface over group.h and softrnic.h. Handles hold shared pointers to what they were made
// from, so that any order of destruction is right; nothing throws into the caller.
#include "hyperloop/core/hyperloop.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "group/infos.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/softrnic.h"

namespace {

using hyperloop::Code;
using hyperloop::InvalidArgument;
using hyperloop::Result;
using hyperloop::Status;

static_assert(HL_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(HL_UNAVAILABLE == static_cast<int>(Code::kUnavailable));
static_assert(HL_BUSY == static_cast<int>(Code::kBusy));
static_assert(HL_PROTECTION == static_cast<int>(Code::kProtection));
static_assert(HL_INTERNAL == static_cast<int>(Code::kInternal));
static_assert(HL_MAX_GROUP_SIZE == hyperloop::kMaxGroupSize);
static_assert(hyperloop::kMaxWindow == 4096 && hyperloop::kMaxSlots == 8192,
              "hyperloop.h tells these limits");
static_assert(HL_FILE == static_cast<int>(hyperloop::rnic::Media::kFile) &&
              HL_PMEM == static_cast<int>(hyperloop::rnic::Media::kPmem));

struct Device {
  std::unique_ptr<hyperloop::rnic::Device> device;
  std::unique_ptr<hyperloop::rnic::ProtectionDomain> pd;
};
struct Region {
  std::shared_ptr<Device> device;
  std::unique_ptr<hyperloop::rnic::Buffer> buffer;  // null: the caller's memory
  std::unique_ptr<hyperloop::rnic::MemoryRegion> mr;
  hyperloop::rnic::Media media = hyperloop::rnic::Media::kRam;
};

std::string& LastError() {
  thread_local std::string text;
  return text;
}

void SetLastError(const char* function, std::string_view text) noexcept {
  try {
    LastError() = std::string(function).append(": ").append(text);
  } catch (const std::exception&) {  // no memory for it: better no text than another call's
    LastError().clear();
  }
}

// Runs `body` → Status, and turns whatever comes out into a code and this thread's last error.
template <class Body>
hl_code Guarded(const char* function, Body&& body) noexcept {
  try {
    const Status status = body();
    if (status.ok()) return HL_OK;
    SetLastError(function, status.message());
    return static_cast<hl_code>(status.code());
  } catch (const std::bad_alloc&) {
    SetLastError(function, "out of memory");
    return HL_NO_SPACE;
  } catch (const std::exception& e) {
    SetLastError(function, e.what());
    return HL_INTERNAL;
  } catch (...) {
    SetLastError(function, "an exception of unknown type");
    return HL_INTERNAL;
  }
}

template <class... Pointers>
Status NeedAll(Pointers... pointers) {
  if (((pointers != nullptr) && ...)) return {};
  return InvalidArgument("a pointer that must not be null is");
}

template <class T>
void PutInfo(const T& value, hl_info* info) {
  static_assert(sizeof(T) <= sizeof(info->bytes));
  *info = {};
  info->size = sizeof(T);
  std::memcpy(info->bytes, &value, sizeof(T));
}

template <class T>
Status TakeInfo(const hl_info& info, const char* whose, T* value) {
  if (info.size != sizeof(T)) {
    return InvalidArgument("the info of " + std::string(whose) + " has " +
                           std::to_string(info.size) + " B instead of " +
                           std::to_string(sizeof(T)) +
                           "; pass hl_info on as it is, and run the same release on all nodes");
  }
  std::memcpy(value, info.bytes, sizeof(T));
  return {};
}

Result<std::vector<hyperloop::MemberInfo>> TakeChain(const hl_info* chain, size_t count) {
  if (count == 0 || count > HL_MAX_GROUP_SIZE) {
    return InvalidArgument("a chain of " + std::to_string(count) + " members; 1 to " +
                           std::to_string(HL_MAX_GROUP_SIZE) + " are possible");
  }
  std::vector<hyperloop::MemberInfo> infos(count);
  for (size_t i = 0; i < count; ++i) HL_RETURN_IF_ERROR(TakeInfo(chain[i], "a member", &infos[i]));
  return infos;
}

Status NonEmpty(const char* what, uint64_t size) {
  if (size != 0) return {};
  return InvalidArgument(std::string(what) + " of 0 B; at least 1 B is needed");
}

}  // namespace

struct hl_device {
  std::shared_ptr<Device> device;
};
struct hl_region {
  std::shared_ptr<Region> region;
};
struct hl_member {
  std::shared_ptr<Region> region;
  std::unique_ptr<hyperloop::Member> member;  // goes first
};
struct hl_group {
  std::shared_ptr<Region> region;
  std::unique_ptr<hyperloop::Group> group;  // goes first
};

namespace {

// One primitive: `submit(group)` → Result<Ticket>.
template <class Submit>
hl_code Start(const char* function, hl_group* group, hl_ticket* ticket, Submit&& submit) {
  return Guarded(function, [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group, ticket));
    HL_ASSIGN_OR_RETURN(*ticket, submit(*group->group));
    return {};
  });
}

Status AddRegion(const hl_device& device, std::unique_ptr<hyperloop::rnic::Buffer> buffer,
                 void* address, size_t size, const hyperloop::rnic::ProtectionDomain::Backing& from,
                 hl_region** region) {
  using namespace hyperloop::rnic;  // NOLINT(google-build-using-namespace)
  auto made = std::make_shared<Region>();
  made->device = device.device;
  made->buffer = std::move(buffer);
  HL_ASSIGN_OR_RETURN(
      made->mr, made->device->pd->Register(
                    address, size, kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic, from));
  made->media = from.media;
  *region = new hl_region{std::move(made)};
  return {};
}

}  // namespace

extern "C" {

const char* hl_code_name(hl_code code) {
  if (code < HL_OK || code > HL_INTERNAL) return "unknown";
  return hyperloop::CodeName(static_cast<Code>(code)).data();
}

size_t hl_last_error(char* buffer, size_t size) {
  const std::string& text = LastError();
  if (buffer != nullptr && size != 0) {
    const size_t n = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), n);
    buffer[n] = '\0';
  }
  return text.size();
}

hl_code hl_device_open_softrnic(const char* socket_path, const char* host, hl_device** device) {
  return Guarded("hl_device_open_softrnic", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(socket_path, host, device));
    auto made = std::make_shared<Device>();
    HL_ASSIGN_OR_RETURN(made->device, hyperloop::softrnic::OpenDaemonDevice({socket_path, host}));
    HL_ASSIGN_OR_RETURN(made->pd, made->device->AllocatePd());
    *device = new hl_device{std::move(made)};
    return {};
  });
}

int hl_device_alive(const hl_device* device) {
  return device != nullptr && device->device->device->alive() ? 1 : 0;
}

void hl_device_close(hl_device* device) { delete device; }

hl_code hl_region_create(hl_device* device, size_t size, hl_region** region) {
  return Guarded("hl_region_create", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(device, region));
    if (size < hyperloop::kMinRegionBytes) {
      return InvalidArgument("a region of " + std::to_string(size) + " B; at least " +
                             std::to_string(hyperloop::kMinRegionBytes) + " B are needed");
    }
    HL_ASSIGN_OR_RETURN(auto buffer, device->device->device->AllocateBuffer(size));
    void* const address = buffer->data();
    return AddRegion(*device, std::move(buffer), address, size, {}, region);
  });
}

hl_code hl_region_register(hl_device* device, void* address, size_t size, int fd,
                           uint64_t fd_offset, hl_media media, hl_region** region) {
  return Guarded("hl_region_register", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(device, address, region));
    if (media != HL_RAM && media != HL_FILE && media != HL_PMEM)
      return InvalidArgument("media " + std::to_string(media) + ": HL_RAM, HL_FILE or HL_PMEM");
    if (fd < 0)
      return InvalidArgument(
          "memory of the caller's needs the descriptor of the file that it maps; hl_region_create "
          "gives memory that needs none");
    return AddRegion(*device, nullptr, address, size,
                     {fd, fd_offset, static_cast<hyperloop::rnic::Media>(media)}, region);
  });
}

void* hl_region_data(hl_region* region) {
  // The device counts addresses as this process does.
  return region == nullptr ? nullptr : reinterpret_cast<void*>(region->region->mr->addr());
}

size_t hl_region_size(const hl_region* region) {
  return region == nullptr ? 0 : region->region->mr->length();
}

void hl_region_destroy(hl_region* region) { delete region; }

void hl_options_init(hl_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->datapath = "offload";
  options->group_size = 1;
  options->window = 64;
  options->ack_timeout_ms = 10000;
}

hl_code hl_member_create(hl_region* region, const hl_options* options, uint32_t position,
                         hl_member** member) {
  return Guarded("hl_member_create", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(region, options, member));
    HL_RETURN_IF_ERROR(NeedAll(options->datapath));
    hyperloop::MemberOptions own;
    HL_ASSIGN_OR_RETURN(own.datapath, hyperloop::ParseDatapath(options->datapath));
    own.position = position;
    own.group_size = options->group_size;
    own.window = options->window;
    own.slots = options->slots;
    Region& on = *region->region;
    const bool by_cpu = own.datapath == hyperloop::Datapath::kCpuPolling ||
                        own.datapath == hyperloop::Datapath::kCpuEvent;
    if (by_cpu && on.media != hyperloop::rnic::Media::kRam) {
      return hyperloop::NotSupported(
          "with datapath cpu-polling or cpu-event a member's CPU makes bytes durable, which this "
          "interface does for HL_RAM only: use datapath offload or fanout, or the C++ interface");
    }
    HL_ASSIGN_OR_RETURN(auto made,
                        hyperloop::Member::Create(*on.device->device, *on.device->pd, *on.mr, own));
    *member = new hl_member{region->region, std::move(made)};
    return {};
  });
}

hl_code hl_member_info(const hl_member* member, hl_info* info) {
  return Guarded("hl_member_info", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(member, info));
    PutInfo(member->member->info(), info);
    return {};
  });
}

hl_code hl_member_connect(hl_member* member, const hl_info* primary, const hl_info* chain,
                          size_t count) {
  return Guarded("hl_member_connect", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(member, primary, chain));
    hyperloop::PrimaryInfo head;
    HL_RETURN_IF_ERROR(TakeInfo(*primary, "the primary", &head));
    HL_ASSIGN_OR_RETURN(const auto members, TakeChain(chain, count));
    return member->member->Connect(head, members);
  });
}

void hl_member_destroy(hl_member* member) { delete member; }

hl_code hl_group_create(hl_region* region, const hl_options* options, hl_group** group) {
  return Guarded("hl_group_create", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(region, options, group));
    HL_RETURN_IF_ERROR(NeedAll(options->datapath));
    if (options->ack_timeout_ms == 0)
      return InvalidArgument("ack_timeout_ms is 0; it must be at least 1 (see hl_options_init)");
    hyperloop::GroupOptions own;
    HL_ASSIGN_OR_RETURN(own.datapath, hyperloop::ParseDatapath(options->datapath));
    own.window = options->window;
    own.slots = options->slots;
    own.ack_timeout = std::chrono::milliseconds(options->ack_timeout_ms);
    Region& on = *region->region;
    HL_ASSIGN_OR_RETURN(auto made, hyperloop::Group::Create(*on.device->device, *on.device->pd,
                                                            *on.mr, own, options->group_size));
    *group = new hl_group{region->region, std::move(made)};
    return {};
  });
}

hl_code hl_group_info(const hl_group* group, hl_info* info) {
  return Guarded("hl_group_info", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group, info));
    PutInfo(group->group->info(), info);
    return {};
  });
}

hl_code hl_group_connect(hl_group* group, const hl_info* chain, size_t count) {
  return Guarded("hl_group_connect", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group, chain));
    HL_ASSIGN_OR_RETURN(const auto members, TakeChain(chain, count));
    return group->group->Connect(members);
  });
}

void hl_group_destroy(hl_group* group) { delete group; }

hl_code hl_write(hl_group* group, uint64_t offset, uint64_t size, int flush, hl_ticket* ticket) {
  return Start("hl_write", group, ticket, [&](hyperloop::Group& to) -> Result<hyperloop::Ticket> {
    HL_RETURN_IF_ERROR(NonEmpty("gWRITE", size));
    return to.Write(offset, size, flush != 0);
  });
}

hl_code hl_memcopy(hl_group* group, uint64_t source, uint64_t destination, uint64_t size, int flush,
                   hl_ticket* ticket) {
  return Start("hl_memcopy", group, ticket, [&](hyperloop::Group& to) -> Result<hyperloop::Ticket> {
    HL_RETURN_IF_ERROR(NonEmpty("gMEMCPY", size));
    return to.MemCopy(source, destination, size, flush != 0);
  });
}

hl_code hl_cas(hl_group* group, uint64_t offset, uint64_t expected, uint64_t desired,
               uint32_t execute_map, hl_ticket* ticket) {
  return Start("hl_cas", group, ticket, [&](hyperloop::Group& to) {
    return to.CompareAndSwap(offset, expected, desired, execute_map);
  });
}

hl_code hl_flush(hl_group* group, uint64_t offset, uint64_t size, hl_ticket* ticket) {
  return Start("hl_flush", group, ticket,
               [&](hyperloop::Group& to) { return to.Flush(offset, size); });
}

hl_code hl_wait(hl_group* group, hl_ticket ticket, uint64_t* originals) {
  return Guarded("hl_wait", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group));
    hyperloop::OperationResult result;
    HL_RETURN_IF_ERROR(group->group->Wait(ticket, originals != nullptr ? &result : nullptr));
    if (originals != nullptr)
      std::copy_n(result.original.begin(), group->group->group_size(), originals);
    return {};
  });
}

hl_code hl_wait_all(hl_group* group) {
  return Guarded("hl_wait_all", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group));
    return group->group->WaitAll();
  });
}

hl_code hl_poll(hl_group* group, hl_ticket* acknowledged) {
  return Guarded("hl_poll", [&]() -> Status {
    HL_RETURN_IF_ERROR(NeedAll(group, acknowledged));
    HL_ASSIGN_OR_RETURN(*acknowledged, group->group->Poll());
    return {};
  });
}

}  // extern "C"
