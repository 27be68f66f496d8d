// Device, protection domain and memory region over libibverbs: control path only.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/shared_memory.h"
#include "verbs/connection.h"
#include "verbs/open.h"
#include "verbs/queues.h"

namespace hyperloop::verbs {
namespace {

class VerbsBuffer final : public rnic::Buffer {
 public:
  VerbsBuffer(std::shared_ptr<VerbsContext> context, std::unique_ptr<SharedMemory> memory,
              size_t size)
      : context_(std::move(context)), memory_(std::move(memory)), size_(size) {}
  std::byte* data() override { return memory_->data(); }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<VerbsContext> context_;
  const std::unique_ptr<SharedMemory> memory_;
  const size_t size_;
};

class VerbsMemoryRegion final : public rnic::MemoryRegion {
 public:
  VerbsMemoryRegion(std::shared_ptr<VerbsContext> context, ibv_mr* mr)
      : context_(std::move(context)), mr_(mr) {}
  ~VerbsMemoryRegion() override {
    if (context_->IsOwner()) context_->lib().ibv_dereg_mr(mr_);
  }
  uint64_t addr() const override { return reinterpret_cast<uint64_t>(mr_->addr); }
  uint64_t length() const override { return mr_->length; }
  uint32_t lkey() const override { return mr_->lkey; }
  uint32_t rkey() const override { return mr_->rkey; }

 private:
  const std::shared_ptr<VerbsContext> context_;
  ibv_mr* const mr_;
};

// Shared by the device and its protection domains, which may publish services. The agent is
// destroyed with the device.
struct Publications {
  Mutex mutex;
  std::unique_ptr<ServiceAgent> agent HL_GUARDED_BY(mutex);
};

class VerbsProtectionDomain final : public rnic::ProtectionDomain {
 public:
  VerbsProtectionDomain(std::shared_ptr<VerbsContext> context,
                        std::shared_ptr<Publications> publications, ibv_pd* pd)
      : context_(std::move(context)), publications_(std::move(publications)), pd_(pd) {}
  ~VerbsProtectionDomain() override {
    if (!context_->IsOwner()) return;
    {
      const MutexLock lock(publications_->mutex);
      if (publications_->agent != nullptr) publications_->agent->Withdraw(pd_);
    }
    context_->lib().ibv_dealloc_pd(pd_);
  }
  ibv_pd* pd() const { return pd_; }

  Result<std::unique_ptr<rnic::MemoryRegion>> Register(void* addr, size_t length, uint32_t access,
                                                       const Backing& backing) override;
  Result<std::unique_ptr<rnic::QueuePair>> CreateQueuePair(const rnic::QpAttr& attr) override {
    HL_ASSIGN_OR_RETURN(auto qp, VerbsQueuePair::Create(context_, pd_, attr));
    return std::unique_ptr<rnic::QueuePair>(std::move(qp));
  }

 private:
  const std::shared_ptr<VerbsContext> context_;
  const std::shared_ptr<Publications> publications_;
  ibv_pd* const pd_;
};

int AccessFlags(uint32_t access) {
  int flags = 0;
  // libibverbs demands local write together with remote write and remote atomic.
  constexpr uint32_t kWrites = rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteAtomic;
  if ((access & kWrites) != 0) flags |= IBV_ACCESS_LOCAL_WRITE;
  if ((access & rnic::kRemoteWrite) != 0) flags |= IBV_ACCESS_REMOTE_WRITE;
  if ((access & rnic::kRemoteRead) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((access & rnic::kRemoteAtomic) != 0) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return flags;
}

Result<std::unique_ptr<rnic::MemoryRegion>> VerbsProtectionDomain::Register(
    void* addr, size_t length, uint32_t access, const Backing& backing) {
  if (!context_->Usable()) return context_->DeadStatus();
  const auto start = reinterpret_cast<uint64_t>(addr);
  if (length == 0 || start + length < start) {
    return InvalidArgument("memory region of " + std::to_string(length) + " bytes");
  }
  const int flags = AccessFlags(access);
  if (backing.media == rnic::Media::kFile && (flags & IBV_ACCESS_LOCAL_WRITE) != 0) {
    return NotSupported(
        "no RDMA card can msync: provider verbs cannot make a file on a disk (media=file) durable. "
        "Put the pool on tmpfs (media=ram) or on persistent memory (media=pmem)");
  }
  ibv_mr* mr = (context_->lib().ibv_reg_mr)(pd_, addr, length, flags);
  if (mr == nullptr) {
    return VerbsError(
        errno, "registering " + std::to_string(length) + " bytes with " + context_->port().device);
  }
  return std::unique_ptr<rnic::MemoryRegion>(new VerbsMemoryRegion(context_, mr));
}

class VerbsDevice final : public rnic::Device {
 public:
  explicit VerbsDevice(std::shared_ptr<VerbsContext> context)
      : context_(std::move(context)), publications_(std::make_shared<Publications>()) {}
  // A domain may outlive the device by mistake. The agent's thread must not.
  ~VerbsDevice() override {
    const MutexLock lock(publications_->mutex);
    publications_->agent.reset();
  }
  Status ReadCaps();

  const rnic::Caps& caps() const override { return caps_; }
  rnic::Gid gid() const override { return context_->port().gid; }
  bool alive() const override { return context_->Alive(); }
  Result<std::unique_ptr<rnic::ProtectionDomain>> AllocatePd() override;
  Result<std::unique_ptr<rnic::CompletionQueue>> CreateCq(const rnic::CqAttr& attr) override {
    HL_ASSIGN_OR_RETURN(auto cq, VerbsCompletionQueue::Create(context_, attr));
    return std::unique_ptr<rnic::CompletionQueue>(std::move(cq));
  }
  Result<std::unique_ptr<rnic::Buffer>> AllocateBuffer(size_t size) override {
    if (!context_->Usable()) return context_->DeadStatus();
    HL_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(size, false, context_->guard()));
    return std::unique_ptr<rnic::Buffer>(new VerbsBuffer(context_, std::move(memory), size));
  }
  Result<rnic::Counters> QueryCounters() override;
  Status Publish(std::string_view service, rnic::ProtectionDomain& pd,
                 std::span<const std::byte> private_data) override;
  Result<std::vector<std::byte>> ConnectService(std::string_view host, std::string_view service,
                                                rnic::QueuePair& qp) override;

 private:
  const std::shared_ptr<VerbsContext> context_;
  const std::shared_ptr<Publications> publications_;
  rnic::Caps caps_;
};

Result<std::unique_ptr<rnic::ProtectionDomain>> VerbsDevice::AllocatePd() {
  if (!context_->Usable()) return context_->DeadStatus();
  ibv_pd* pd = context_->lib().ibv_alloc_pd(context_->device());
  if (pd == nullptr) return VerbsError(errno, "making a protection domain");
  return std::unique_ptr<rnic::ProtectionDomain>(
      new VerbsProtectionDomain(context_, publications_, pd));
}

// libibverbs has no query for the largest inline data: a queue pair must be made to find out.
Status VerbsDevice::ReadCaps() {
  const ibv_device_attr& attr = context_->attributes();
  caps_.provider = "verbs";
  caps_.completion_events = true;
  caps_.max_sge = std::min(kMaxSendSge, static_cast<uint32_t>(attr.max_sge));
  HL_ASSIGN_OR_RETURN(const auto pd, AllocatePd());
  HL_ASSIGN_OR_RETURN(const auto cq, CreateCq({.depth = 2}));
  for (uint32_t bytes = 1024; bytes >= 32 && caps_.max_inline == 0; bytes /= 2) {
    rnic::QpAttr probe{.send_cq = cq.get(), .send_wqebbs = 2, .recv_wqes = 0};
    probe.max_inline = bytes;
    if (pd->CreateQueuePair(probe).ok()) caps_.max_inline = bytes;
  }
  return {};
}

Result<rnic::Counters> VerbsDevice::QueryCounters() {
  if (!context_->Usable()) return context_->DeadStatus();
  const VerbsContext::Port& port = context_->port();
  const std::string base =
      "/sys/class/infiniband/" + port.device + "/ports/" + std::to_string(port.number);
  rnic::Counters counters;
  for (const char* folder : {"/counters", "/hw_counters"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(base + folder, error)) {
      if (entry.path().filename() == "lifespan") continue;  // how long the kernel caches the others
      uint64_t value = 0;
      if (std::ifstream(entry.path()) >> value) counters[entry.path().filename()] = value;
    }
  }
  if (counters.empty()) return NotFound(base + " has no counters");
  return counters;
}

Status VerbsDevice::Publish(std::string_view service, rnic::ProtectionDomain& pd,
                            std::span<const std::byte> private_data) {
  if (!context_->Usable()) return context_->DeadStatus();
  if (service.empty() || service.size() > kMaxServiceName ||
      private_data.size() > kMaxPrivateData) {
    return InvalidArgument("service name of " + std::to_string(service.size()) +
                           " bytes and private data of " + std::to_string(private_data.size()) +
                           ": 1 to " + std::to_string(kMaxServiceName) + " and at most " +
                           std::to_string(kMaxPrivateData));
  }
  const MutexLock lock(publications_->mutex);
  if (publications_->agent == nullptr) {
    HL_ASSIGN_OR_RETURN(publications_->agent, ServiceAgent::Start(*context_));
  }
  publications_->agent->Publish(service, static_cast<VerbsProtectionDomain&>(pd).pd(),
                                private_data);
  return {};
}

Result<std::vector<std::byte>> VerbsDevice::ConnectService(std::string_view host,
                                                           std::string_view service,
                                                           rnic::QueuePair& qp) {
  if (!context_->Usable()) return context_->DeadStatus();
  auto& mine = static_cast<VerbsQueuePair&>(qp);
  if (qp.state() != rnic::QpState::kReset) return mine.NotInReset();
  if (service.empty() || service.size() > kMaxServiceName) {
    return InvalidArgument("service name of " + std::to_string(service.size()) + " bytes: 1 to " +
                           std::to_string(kMaxServiceName));
  }
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = mine.max_read_atomic();
  parameters.retry_count = mine.RetryCount();
  parameters.rnr_retry_count = mine.rnr_retry();
  parameters.qp_num = qp.qpn();
  HL_ASSIGN_OR_RETURN(auto connection, CmConnection::Ask(context_, host, service, parameters));
  std::vector<std::byte> data = connection->private_data();
  HL_RETURN_IF_ERROR(mine.Connect(std::move(connection)));
  return data;
}

}  // namespace

Result<std::unique_ptr<rnic::Device>> OpenDevice(const DeviceOptions& options) {
  HL_ASSIGN_OR_RETURN(auto context, OpenContext(options));
  auto device = std::make_unique<VerbsDevice>(std::move(context));
  HL_RETURN_IF_ERROR(device->ReadCaps());
  return std::unique_ptr<rnic::Device>(std::move(device));
}

}  // namespace hyperloop::verbs
