// Device, protection domain, memory region and buffer of the software RNIC's driver: control path
// only.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "softrnic/driver/device_context.h"
#include "softrnic/driver/device_queues.h"

namespace hyperloop::softrnic {
namespace {

// How long ConnectService waits for a host on another machine.
constexpr std::chrono::seconds kServiceTimeout{5};

Status CopyName(std::string_view name, std::string_view what, char (&out)[kNameBytes]) {
  if (!IsName(name)) return InvalidArgument(Text("a ", what, " name is ", kNameRule));
  std::memcpy(out, name.data(), name.size());
  return {};
}

class SoftBuffer final : public rnic::Buffer {
 public:
  SoftBuffer(std::shared_ptr<DeviceContext> context, std::unique_ptr<SharedMemory> memory,
             size_t size)
      : context_(std::move(context)), memory_(std::move(memory)), size_(size) {
    context_->AddBuffer(memory_.get());
  }
  ~SoftBuffer() override { context_->RemoveBuffer(memory_.get()); }
  std::byte* data() override { return memory_->data(); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<DeviceContext> context_;
  const std::unique_ptr<SharedMemory> memory_;
  const size_t size_;
};

class SoftMemoryRegion final : public rnic::MemoryRegion {
 public:
  // Makes a region without a key, which MakeKey gives it.
  SoftMemoryRegion(std::shared_ptr<DeviceContext> context, std::shared_ptr<ClientUmem> umem,
                   uint64_t addr, uint64_t length)
      : context_(std::move(context)), umem_(std::move(umem)), addr_(addr), length_(length) {}
  ~SoftMemoryRegion() override {
    if (key_.has_value()) context_->Destroy(Op::kDestroyMkey, key_->lkey);
  }
  Status MakeKey(uint32_t pdn, uint32_t access, rnic::Media media) {
    HL_ASSIGN_OR_RETURN(key_, context_->CreateMkey({.pdn = pdn,
                                                    .umem = umem_->id(),
                                                    .addr = addr_,
                                                    .length = length_,
                                                    .access = access,
                                                    .media = static_cast<uint32_t>(media)}));
    return {};
  }
  uint64_t addr() const override { return addr_; }
  uint64_t length() const override { return length_; }
  uint32_t lkey() const override { return key_->lkey; }
  uint32_t rkey() const override { return key_->rkey; }

 private:
  const std::shared_ptr<DeviceContext> context_;
  const std::shared_ptr<ClientUmem> umem_;  // freed after the key
  const uint64_t addr_;
  const uint64_t length_;
  std::optional<CreateMkeyReply> key_;
};

class SoftProtectionDomain final : public rnic::ProtectionDomain {
 public:
  // Makes the owner of a domain that is not made at the engine yet (Own).
  SoftProtectionDomain(std::shared_ptr<DeviceContext> context, rnic::Gid gid)
      : context_(std::move(context)), gid_(gid) {}
  ~SoftProtectionDomain() override {
    if (pdn_ != 0) context_->Destroy(Op::kFreePd, pdn_);
  }
  void Own(uint32_t pdn) { pdn_ = pdn; }
  uint32_t pdn() const { return pdn_; }

  Result<std::unique_ptr<rnic::MemoryRegion>> Register(void* addr, size_t length, uint32_t access,
                                                       const Backing& backing) override {
    HL_ASSIGN_OR_RETURN(auto umem, Pin(static_cast<std::byte*>(addr), length, backing));
    auto region = std::make_unique<SoftMemoryRegion>(context_, std::move(umem),
                                                     reinterpret_cast<uint64_t>(addr), length);
    HL_RETURN_IF_ERROR(region->MakeKey(pdn_, access, backing.media));
    return std::unique_ptr<rnic::MemoryRegion>(std::move(region));
  }

  Result<std::unique_ptr<rnic::QueuePair>> CreateQueuePair(const rnic::QpAttr& attr) override {
    HL_ASSIGN_OR_RETURN(auto qp, SoftQueuePair::Create(context_, pdn_, attr, gid_));
    return std::unique_ptr<rnic::QueuePair>(std::move(qp));
  }

 private:
  // Makes [addr, addr+length) reachable for the device.
  Result<std::shared_ptr<ClientUmem>> Pin(std::byte* addr, size_t length, const Backing& backing) {
    const auto start = reinterpret_cast<uint64_t>(addr);
    if (length == 0 || start + length < start) {
      return InvalidArgument("memory region of " + std::to_string(length) + " bytes");
    }
    if (backing.fd >= 0) {
      if (start % PageSize() != 0 || backing.fd_offset % PageSize() != 0) {
        return InvalidArgument("memory region at file offset " + std::to_string(backing.fd_offset) +
                               ": address and offset must be multiples of the page size, " +
                               std::to_string(PageSize()));
      }
      return context_->ShareUmem({start, backing.fd_offset, length}, backing.fd);
    }
    HL_ASSIGN_OR_RETURN(std::shared_ptr<ClientUmem> umem, PinWithoutFile(addr, length));
    return umem;
  }
  Result<std::unique_ptr<ClientUmem>> PinWithoutFile(std::byte* addr, size_t length) {
    const auto start = reinterpret_cast<uint64_t>(addr);
    if (!context_->port().needs_fd()) return context_->RegisterUmem({start, 0, length}, -1);
    Result<std::unique_ptr<ClientUmem>> umem = InvalidArgument(
        "the RNIC is another process: register memory from AllocateBuffer, or pass the file "
        "behind it");
    context_->WithBuffer(addr, length, [&](const SharedMemory& memory) {
      const uint64_t skip = static_cast<uint64_t>(addr - memory.data()) / PageSize() * PageSize();
      const auto base = reinterpret_cast<uint64_t>(memory.data()) + skip;
      umem = context_->RegisterUmem({base, skip, start + length - base}, memory.fd());
    });
    return umem;
  }

  const std::shared_ptr<DeviceContext> context_;
  const rnic::Gid gid_;
  uint32_t pdn_ = 0;  // 0: none
};

class SoftDevice final : public rnic::Device {
 public:
  explicit SoftDevice(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {
    caps_.provider = "softrnic";
    caps_.cross_channel = true;
    caps_.ignore_cq_overrun = true;
    caps_.completion_events = true;
    caps_.max_sge = kMaxSendSge;
    caps_.max_inline = rnic::kMaxInline;
    const OpenReply& reply = context_->port().attachment();
    std::copy(std::begin(reply.gid), std::end(reply.gid), gid_.raw.begin());
  }

  const rnic::Caps& caps() const override { return caps_; }
  rnic::Gid gid() const override { return gid_; }
  uint64_t rnic() const override { return context_->port().attachment().rnic; }
  bool alive() const override { return context_->Alive(); }

  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override {
    auto pd = std::make_unique<SoftProtectionDomain>(context_, gid_);
    Reply reply;
    HL_RETURN_IF_ERROR(context_->Execute(MakeCommand(Op::kAllocPd), &reply));
    pd->Own(reply.result.id.id);
    return std::unique_ptr<rnic::ProtectionDomain>(std::move(pd));
  }

  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr& attr) override {
    HL_ASSIGN_OR_RETURN(auto cq, SoftCompletionQueue::Create(context_, attr));
    return std::unique_ptr<rnic::CompletionQueue>(std::move(cq));
  }

  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t size) override {
    HL_ASSIGN_OR_RETURN(auto memory, context_->AllocateShared(size));
    return std::unique_ptr<rnic::Buffer>(new SoftBuffer(context_, std::move(memory), size));
  }

  Result<rnic::Counters> QueryCounters() override { return Query(MakeCommand(Op::kQueryCounters)); }
  Result<rnic::Counters> QueryCountersOf(std::string_view host) override;
  Status Publish(std::string_view service, rnic::ProtectionDomain& pd,
                 std::span<const std::byte> private_data) override;
  Result<std::vector<std::byte>> ConnectService(std::string_view host, std::string_view service,
                                                rnic::QueuePair& qp) override;

 private:
  Result<rnic::Counters> Query(const Command& command);

  const std::shared_ptr<DeviceContext> context_;
  rnic::Caps caps_;
  rnic::Gid gid_;
};

Result<rnic::Counters> SoftDevice::QueryCountersOf(std::string_view host) {
  Command command = MakeCommand(Op::kQueryCounters);
  HL_RETURN_IF_ERROR(CopyName(host, "host", command.args.counters.host));
  return Query(command);
}

Result<rnic::Counters> SoftDevice::Query(const Command& command) {
  Reply reply;
  std::string text;
  HL_RETURN_IF_ERROR(context_->Execute(command, &reply, &text));
  rnic::Counters counters;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t space = line.rfind(' ');
    uint64_t value = 0;
    if (space == std::string_view::npos ||
        std::from_chars(line.data() + space + 1, line.data() + line.size(), value).ec !=
            std::errc()) {
      return Internal("counter line \"" + std::string(line) + "\"");
    }
    counters[std::string(line.substr(0, space))] = value;
  }
  return counters;
}

Status SoftDevice::Publish(std::string_view service, rnic::ProtectionDomain& pd,
                           std::span<const std::byte> private_data) {
  Command command = MakeCommand(Op::kPublish);
  PublishArgs& args = command.args.publish;
  HL_RETURN_IF_ERROR(CopyName(service, "service", args.service));
  if (private_data.size() > kMaxPrivateData) {
    return InvalidArgument("private data of " + std::to_string(private_data.size()) +
                           " bytes: at most " + std::to_string(kMaxPrivateData));
  }
  args.pdn = static_cast<SoftProtectionDomain&>(pd).pdn();
  args.private_length = static_cast<uint32_t>(private_data.size());
  std::copy(private_data.begin(), private_data.end(),
            reinterpret_cast<std::byte*>(args.private_data));
  Reply reply;
  return context_->Execute(command, &reply);
}

Result<std::vector<std::byte>> SoftDevice::ConnectService(std::string_view host,
                                                          std::string_view service,
                                                          rnic::QueuePair& qp) {
  Command command = MakeCommand(Op::kConnectService);
  ConnectServiceArgs& args = command.args.connect;
  HL_RETURN_IF_ERROR(CopyName(host, "host", args.host));
  HL_RETURN_IF_ERROR(CopyName(service, "service", args.service));
  args.qpn = qp.qpn();
  Reply reply;
  // For a host on another machine the daemon asks the other daemon, which takes a while.
  const auto deadline = std::chrono::steady_clock::now() + kServiceTimeout;
  Status status = context_->Execute(command, &reply);
  while (status.code() == Code::kBusy) {
    if (std::chrono::steady_clock::now() > deadline)
      return Unavailable("no answer within " + std::to_string(kServiceTimeout.count()) +
                         " s: " + status.message());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = context_->Execute(command, &reply);
  }
  HL_RETURN_IF_ERROR(status);
  const ConnectServiceReply& answer = reply.result.connect;
  if (answer.private_length > kMaxPrivateData) {
    return Internal("private data of " + std::to_string(answer.private_length) + " bytes");
  }
  rnic::QpAddress peer;
  std::copy(std::begin(answer.gid), std::end(answer.gid), peer.gid.raw.begin());
  peer.qpn = answer.remote_qpn;
  HL_RETURN_IF_ERROR(qp.Connect(peer));
  const auto* data = reinterpret_cast<const std::byte*>(answer.private_data);
  return std::vector<std::byte>(data, data + answer.private_length);
}

}  // namespace

Result<std::unique_ptr<rnic::Device>> MakeDevice(std::unique_ptr<CommandPort> port) {
  HL_ASSIGN_OR_RETURN(auto guard, ForkDetector::Create());
  return std::unique_ptr<rnic::Device>(
      new SoftDevice(std::make_shared<DeviceContext>(std::move(port), std::move(guard))));
}

}  // namespace hyperloop::softrnic
