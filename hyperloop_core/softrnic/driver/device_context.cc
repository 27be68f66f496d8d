#include "softrnic/driver/device_context.h"

#include <sched.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/steady_ns.h"
#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint32_t kCallsPerClock = 16;
constexpr uint64_t kCheckNs = 2'000'000;
constexpr uint64_t kStepAsideNs = 1'000'000;

// Moves the calling thread off `cpu` if it may run elsewhere. Its affinity is restored, so only its
// present processor changes.
void StepAsideFrom(uint32_t cpu) {
  cpu_set_t allowed;
  if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

bool OpenQueuePairs::Insert(uint32_t qpn, SoftQueuePair* qp) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[(Start(qpn) + i) % kSlots];
    const uint32_t found = slot.qpn.load(std::memory_order_relaxed);
    if (found != kEmpty && found != kRemoved) continue;
    slot.qp.store(qp, std::memory_order_relaxed);
    slot.qpn.store(qpn, std::memory_order_release);  // pairs with Find
    return true;
  }
  return false;
}

void OpenQueuePairs::Remove(uint32_t qpn) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[(Start(qpn) + i) % kSlots];
    const uint32_t found = slot.qpn.load(std::memory_order_relaxed);
    if (found == kEmpty) return;
    if (found != qpn) continue;
    slot.qpn.store(kRemoved, std::memory_order_relaxed);
    slot.qp.store(nullptr, std::memory_order_relaxed);
    return;
  }
}

SoftQueuePair* OpenQueuePairs::Find(uint32_t qpn) const {
  for (uint32_t i = 0; i < kSlots; ++i) {
    const Slot& slot = slots_[(Start(qpn) + i) % kSlots];
    const uint32_t found = slot.qpn.load(std::memory_order_acquire);
    if (found == qpn) return slot.qp.load(std::memory_order_relaxed);
    if (found == kEmpty) return nullptr;
  }
  return nullptr;
}

ClientUmem::~ClientUmem() {
  if (id_ != 0) context_->Destroy(Op::kFreeUmem, id_);
}

DeviceContext::DeviceContext(std::unique_ptr<CommandPort> port, std::unique_ptr<ForkDetector> guard)
    : guard_(std::move(guard)), port_(std::move(port)), uar_(port_->uar()) {}

bool DeviceContext::Alive() const {
  if (!guard_->IsOwner()) return false;
  if (std::atomic_ref(uar_->header.engine_alive).load(std::memory_order_acquire) == 0) return false;
  if (gone_.load(std::memory_order_relaxed)) return false;
  // A lost increment under concurrent callers only delays the check.
  const uint32_t calls = alive_calls_.load(std::memory_order_relaxed) + 1;
  alive_calls_.store(calls, std::memory_order_relaxed);
  return calls % kCallsPerClock != 0 || CheckEngine();
}

bool DeviceContext::CheckEngine() const {
  const uint64_t now = SteadyNs();
  if (now < next_check_ns_.load(std::memory_order_relaxed)) return true;
  next_check_ns_.store(now + kCheckNs, std::memory_order_relaxed);
  if (!port_->EngineGone()) return true;
  gone_.store(true, std::memory_order_relaxed);
  return false;
}

// An engine that is woken on this thread's processor takes the processor: it runs the work and then
// spins for more, and this thread, which waits for the result, runs only when the engine sleeps
// again. Every operation would cost the spin and two switches, while another processor may be idle.
void DeviceContext::WakeEngine() {
  const uint32_t cpu = std::atomic_ref(uar_->header.engine_cpu).load(std::memory_order_relaxed);
  if (static_cast<uint32_t>(sched_getcpu()) == cpu) {
    const uint64_t now = SteadyNs();
    if (now >= next_step_aside_ns_.load(std::memory_order_relaxed)) {
      next_step_aside_ns_.store(now + kStepAsideNs, std::memory_order_relaxed);
      StepAsideFrom(cpu);
    }
  }
  // Only now, because whoever finds the mark cleared relies on what follows.
  if (std::atomic_ref(uar_->header.engine_sleeping).exchange(0, std::memory_order_seq_cst) != 0)
    port_->WakeEngine();
}

void DeviceContext::NoteRefusal() {
  if (port_->EngineGone()) gone_.store(true, std::memory_order_relaxed);
}

Status DeviceContext::DeadStatus() const {
  if (!guard_->IsOwner()) {
    return Unavailable("this RNIC belongs to the parent process: open a device after fork");
  }
  return Unavailable("the software RNIC has stopped: start hyperloop-rnicd and open it again");
}

Status DeviceContext::Execute(const Command& command, Reply* reply, std::string* text) {
  if (!IsOwner()) return DeadStatus();
  Status status = port_->Execute(command, reply, text);
  if (!status.ok()) NoteRefusal();
  return status;
}

Result<UniqueFd> DeviceContext::CreateEventCq(const Command& command, Reply* reply) {
  if (!IsOwner()) return DeadStatus();
  Result<UniqueFd> channel = port_->CreateEventCq(command, reply);
  if (!channel.ok()) NoteRefusal();
  return channel;
}

void DeviceContext::Destroy(Op op, uint32_t id) {
  Command command = MakeCommand(op);
  command.args.id.id = id;
  Reply reply;
  static_cast<void>(RanOutOfMemory([&] { Execute(command, &reply).IgnoreError(); }));
}

Result<std::unique_ptr<ClientUmem>> DeviceContext::RegisterUmem(const RegisterUmemArgs& args,
                                                                int fd) {
  if (!IsOwner()) return DeadStatus();
  auto umem = std::make_unique<ClientUmem>(shared_from_this());
  Result<uint32_t> id = port_->RegisterUmem(args, fd);
  if (!id.ok()) {
    NoteRefusal();
    return id.status();
  }
  umem->Own(*id);
  return umem;
}

Result<std::shared_ptr<ClientUmem>> DeviceContext::ShareUmem(const RegisterUmemArgs& args, int fd) {
  struct stat file {};
  if (fstat(fd, &file) != 0) return FromErrno(errno, "reading the memory's file");
  const auto same = [&](const SharedUmem& each) {
    return each.args.client_addr == args.client_addr && each.args.fd_offset == args.fd_offset &&
           each.args.length == args.length && each.device == file.st_dev &&
           each.inode == file.st_ino;
  };
  {
    const MutexLock lock(shared_umems_mutex_);
    std::erase_if(shared_umems_, [](const SharedUmem& each) { return each.umem.expired(); });
    for (const SharedUmem& each : shared_umems_) {
      if (!same(each)) continue;
      if (std::shared_ptr<ClientUmem> umem = each.umem.lock()) return umem;
    }
  }
  // Meanwhile the lock is free: populating may take long.
  HL_ASSIGN_OR_RETURN(std::shared_ptr<ClientUmem> umem, RegisterUmem(args, fd));
  const MutexLock lock(shared_umems_mutex_);
  shared_umems_.push_back({args, file.st_dev, file.st_ino, umem});
  return umem;
}

Result<std::unique_ptr<ClientUmem>> DeviceContext::RegisterUmem(const SharedMemory& memory) {
  return RegisterUmem({.client_addr = reinterpret_cast<uint64_t>(memory.data()),
                       .fd_offset = 0,
                       .length = memory.size()},
                      memory.fd());
}

Result<CreateMkeyReply> DeviceContext::CreateMkey(const CreateMkeyArgs& args) {
  Command command = MakeCommand(Op::kCreateMkey);
  command.args.mkey = args;
  Reply reply;
  HL_RETURN_IF_ERROR(Execute(command, &reply));
  return reply.result.mkey;
}

Result<std::unique_ptr<SharedMemory>> DeviceContext::AllocateShared(size_t size) {
  if (!IsOwner()) return DeadStatus();
  return SharedMemory::Create(size, port_->needs_fd(), *guard_);
}

void DeviceContext::AddBuffer(const SharedMemory* memory) {
  MutexLock lock(buffers_mutex_);
  buffers_.emplace(memory->data(), memory);
}

void DeviceContext::RemoveBuffer(const SharedMemory* memory) {
  MutexLock lock(buffers_mutex_);
  buffers_.erase(memory->data());
}

}  // namespace hyperloop::softrnic
