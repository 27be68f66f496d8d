// VerbsContext: what the objects of one open verbs device share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/core/fork_detector.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/verbs.h"
#include "verbs/library.h"

namespace hyperloop::verbs {

class VerbsQueuePair;

// The id of a work request: its queue pair, the queue pair's generation (Reset begins a new one),
// the queue and the entry. With it Poll recognises completions of queue pairs that were destroyed
// or reset.
struct WorkId {
  uint32_t slot = 0;        // 24 bits; of the queue pair in the context
  uint32_t generation = 0;  // 23 bits
  bool receive = false;
  uint16_t index = 0;  // of the entry, free running

  uint64_t Pack() const {
    return uint64_t{receive} << 63 | uint64_t{generation & kGenerationMask} << 40 |
           uint64_t{slot & kSlotMask} << 16 | index;
  }
  static WorkId Unpack(uint64_t id) {
    return {static_cast<uint32_t>(id >> 16) & kSlotMask,
            static_cast<uint32_t>(id >> 40) & kGenerationMask, id >> 63 != 0,
            static_cast<uint16_t>(id)};
  }
  static constexpr uint32_t kSlotMask = 0xffffff;
  static constexpr uint32_t kGenerationMask = 0x7fffff;
};

// The open device, its port and address. Thread safe.
class VerbsContext {
 public:
  // The port through which this process's queue pairs are connected.
  struct Port {
    std::string device;  // name
    uint8_t number = 0;
    uint8_t gid_index = 0;
    rnic::Gid gid;
    ibv_mtu mtu = IBV_MTU_1024;  // active
  };

  VerbsContext(const Library& library, std::unique_ptr<ForkDetector> guard, ibv_context* device,
               Port port, const DeviceOptions& options);
  ~VerbsContext();
  VerbsContext(const VerbsContext&) = delete;
  VerbsContext& operator=(const VerbsContext&) = delete;

  const Library& lib() const { return library_; }
  ibv_context* device() const { return device_; }
  const Port& port() const { return port_; }
  const DeviceOptions& options() const { return options_; }
  const ForkDetector& guard() const { return *guard_; }
  const ibv_device_attr& attributes() const { return attributes_; }
  Status QueryAttributes();
  // Soft-RoCE, the kernel's rdma_rxe, by its vendor id.
  bool IsSoftRoce() const { return attributes_.vendor_id == 0xffffff; }

  bool IsOwner() const { return guard_->IsOwner(); }
  // False in a forked child and once the device was removed. A few loads.
  bool Usable() const { return IsOwner() && !dead_.load(std::memory_order_relaxed); }
  // As Usable, but asks the kernel now and then, at most every 10 ms.
  bool Alive();
  // kUnavailable with the reason. Call when Usable or Alive is false.
  Status DeadStatus() const;

  // A number for a queue pair's life between two resets. Work request ids hold its low 23 bits.
  uint32_t NextGeneration() { return next_generation_.fetch_add(1, std::memory_order_relaxed); }
  // Queue pairs, by the slot in their work requests' ids.
  Result<uint32_t> AddQueuePair(VerbsQueuePair* qp);
  void RemoveQueuePair(uint32_t slot);
  // While a caller holds it, no queue pair is removed.
  SharedMutex& queue_pairs_mutex() HL_RETURN_CAPABILITY(queue_pairs_mutex_) {
    return queue_pairs_mutex_;
  }
  VerbsQueuePair* QueuePairLocked(uint32_t slot) const HL_REQUIRES_SHARED(queue_pairs_mutex_) {
    return slot < queue_pairs_.size() ? queue_pairs_[slot] : nullptr;
  }

 private:
  void TakeAsyncEvents();

  const Library& library_;
  const std::unique_ptr<ForkDetector> guard_;
  ibv_context* const device_;
  const Port port_;
  const DeviceOptions options_;
  ibv_device_attr attributes_{};
  std::atomic<bool> dead_{false};
  std::atomic<uint32_t> alive_calls_{0};
  std::atomic<uint64_t> next_look_{0};  // SteadyNs
  std::atomic<uint32_t> next_generation_{0};
  SharedMutex queue_pairs_mutex_;
  std::vector<VerbsQueuePair*> queue_pairs_ HL_GUARDED_BY(queue_pairs_mutex_);
};

// "what: reason", with the remedy where a limit of the process is the likely cause.
Status VerbsError(int error, const std::string& what);

}  // namespace hyperloop::verbs
