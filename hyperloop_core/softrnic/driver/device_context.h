// The state that the objects of one open software RNIC share on the client's side.
//
// A Post rings the doorbell in these steps, in this order:
//   1. plain stores write the WQEs to the ring;
//   2. a release store writes the doorbell record;
//   3. a release store writes the UAR register, which the engine may find by an earlier ring's bit;
//   4. a seq_cst fetch_or sets the register's summary bit, which releases all of the above to
//      Doorbells::Collect;
//   5. a seq_cst load reads engine_sleeping.
// It makes a system call only if the engine sleeps and no ring since it fell asleep has made one.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/shared_memory.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/rnic.h"
#include "softrnic/driver/port.h"

namespace hyperloop::softrnic {

class SoftQueuePair;

// Finds a queue pair by number. Insert and Remove: control path, serialised by the caller's lock.
// Find: lock-free.
class OpenQueuePairs {
 public:
  bool Insert(uint32_t qpn, SoftQueuePair* qp);
  void Remove(uint32_t qpn);
  SoftQueuePair* Find(uint32_t qpn) const;

 private:
  static constexpr uint32_t kSlots = 2 * kMaxQpsPerContext;
  static constexpr uint32_t kEmpty = 0;              // never used: a search ends here
  static constexpr uint32_t kRemoved = 0xffffffffu;  // used before: a search goes on
  static uint32_t Start(uint32_t qpn) { return (qpn * 0x9e3779b1u) >> 22; }
  static_assert(kSlots == 1024, "Start yields 10 bits");

  struct Slot {
    std::atomic<uint32_t> qpn{kEmpty};
    std::atomic<SoftQueuePair*> qp{nullptr};
  };
  std::array<Slot, kSlots> slots_;
};

class DeviceContext;

// A range of this process's memory that the device can reach. Its destructor frees the umem at the
// engine.
class ClientUmem {
 public:
  // To be made before the umem is registered, because afterwards there might be no memory for it.
  // Owns nothing before Own.
  explicit ClientUmem(std::shared_ptr<DeviceContext> context) : context_(std::move(context)) {}
  ~ClientUmem();
  ClientUmem(const ClientUmem&) = delete;
  ClientUmem& operator=(const ClientUmem&) = delete;
  void Own(uint32_t id) { id_ = id; }
  uint32_t id() const { return id_; }

 private:
  const std::shared_ptr<DeviceContext> context_;
  uint32_t id_ = 0;  // 0: none
};

class DeviceContext : public std::enable_shared_from_this<DeviceContext> {
 public:
  DeviceContext(std::unique_ptr<CommandPort> port, std::unique_ptr<ForkDetector> guard);

  // False once the engine is gone, or in a forked child. Costs a few loads. Every 16th call reads
  // the clock and, if the last look is 2 ms ago, makes a system call that notices a killed engine.
  bool Alive() const;
  // The same without the system call: loads only, for the hot path.
  bool Usable() const {
    return guard_->IsOwner() && !gone_.load(std::memory_order_relaxed) &&
           std::atomic_ref(uar_->header.engine_alive).load(std::memory_order_relaxed) != 0;
  }
  // kUnavailable with the reason. Call when Alive is false.
  Status DeadStatus() const;
  bool IsOwner() const { return guard_->IsOwner(); }

  // Executes a command. In a forked child: kUnavailable, and nothing is sent.
  Status Execute(const Command& command, Reply* reply, std::string* text = nullptr);
  // Executes kCreateCq with events. Returns the channel's reading end.
  Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply);
  // Executes kFree* and kDestroy*, for destructors. If that fails, the engine is gone, and the
  // object with it. Needs no memory.
  void Destroy(Op op, uint32_t id);
  Result<std::unique_ptr<ClientUmem>> RegisterUmem(const RegisterUmemArgs& args, int fd);
  // The same for a file's memory. While a umem with these arguments lives, it is shared, so that
  // the engine need not map and populate the memory again.
  Result<std::shared_ptr<ClientUmem>> ShareUmem(const RegisterUmemArgs& args, int fd);
  Result<std::unique_ptr<ClientUmem>> RegisterUmem(const SharedMemory& memory);
  Result<CreateMkeyReply> CreateMkey(const CreateMkeyArgs& args);
  // Allocates zeroed memory that the engine can map.
  Result<std::unique_ptr<SharedMemory>> AllocateShared(size_t size);

  // Rings `register_index` with a value of UarPage::registers. The engine's side is
  // Doorbells::Collect and EngineLoop::Sleep.
  void RingUar(uint32_t register_index, uint64_t value) {
    WriteUar(register_index, value);
    KickEngine();
  }
  // The same for an engine that may sleep on: it collects the value before it completes anything
  // that it does not complete yet.
  void WriteUar(uint32_t register_index, uint64_t value) {
    std::atomic_ref(uar_->registers[register_index])
        .store(value | uint64_t{1} << 63, std::memory_order_release);
    std::atomic_ref(uar_->header.summary[register_index / 64])
        .fetch_or(uint64_t{1} << (register_index % 64), std::memory_order_seq_cst);
  }
  // Ends the engine's sleep, after a seq_cst store that gave it work. Pairs with EngineLoop::Sleep.
  // The first of several calls during one sleep wakes it for all: whoever clears the mark writes to
  // the descriptor, and the engine looks at all doorbells after it has set the mark again.
  void KickEngine() {
    if (std::atomic_ref(uar_->header.engine_sleeping).load(std::memory_order_seq_cst) != 0)
        [[unlikely]] {
      WakeEngine();
    }
  }

  CommandPort& port() { return *port_; }
  OpenQueuePairs& qps() { return qps_; }
  Mutex& qps_mutex() HL_RETURN_CAPABILITY(qps_mutex_) { return qps_mutex_; }

  // Lists memory from Device::AllocateBuffer, so that WithBuffer finds the descriptor behind an
  // address.
  void AddBuffer(const SharedMemory* memory);
  void RemoveBuffer(const SharedMemory* memory);
  // Runs fn(memory) with the buffer that holds [addr, addr+length), which is not removed meanwhile.
  // False: no buffer does.
  template <class F>
  bool WithBuffer(const std::byte* addr, size_t length, F fn) {
    MutexLock lock(buffers_mutex_);
    auto it = buffers_.upper_bound(addr);
    if (it == buffers_.begin()) return false;
    const SharedMemory* memory = (--it)->second;
    const size_t offset = static_cast<size_t>(addr - memory->data());
    if (offset > memory->size() || length > memory->size() - offset) return false;
    fn(*memory);
    return true;
  }

 private:
  bool CheckEngine() const;
  void WakeEngine();
  // Notices, after a command that failed, an engine that is gone or does not answer.
  void NoteRefusal();

  const std::unique_ptr<ForkDetector> guard_;
  const std::unique_ptr<CommandPort> port_;
  UarPage* const uar_;
  mutable std::atomic<bool> gone_{false};
  mutable std::atomic<uint32_t> alive_calls_{0};
  mutable std::atomic<uint64_t> next_check_ns_{0};
  std::atomic<uint64_t> next_step_aside_ns_{0};
  Mutex qps_mutex_;  // guards Insert and Remove of qps_
  OpenQueuePairs qps_;
  struct SharedUmem {
    RegisterUmemArgs args{};
    dev_t device = 0;  // of the file
    ino_t inode = 0;
    std::weak_ptr<ClientUmem> umem;
  };
  Mutex shared_umems_mutex_;
  std::vector<SharedUmem> shared_umems_ HL_GUARDED_BY(shared_umems_mutex_);
  Mutex buffers_mutex_;
  std::map<const std::byte*, const SharedMemory*> buffers_ HL_GUARDED_BY(buffers_mutex_);
};

// The rnic::Device over `port`.
Result<std::unique_ptr<rnic::Device>> MakeDevice(std::unique_ptr<CommandPort> port);

// A command with its opcode set.
inline Command MakeCommand(Op op) {
  Command command;
  command.op = op;
  return command;
}

}  // namespace hyperloop::softrnic
