// RemoteAccess: one-sided access to another node's memory off the commit path, over a queue pair of
// its own and a bounce buffer. Used to equalise members, for heartbeats and for inspection.
//
// Each call is bounded by the timeout that Create got (StartWrite does not wait). After an error
// the queue pair is dead and every later call gives the same error. Thread safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// Memory of another node, as that node described it.
struct RemoteMemory {
  uint64_t addr = 0;
  uint64_t size = 0;
  uint32_t rkey = 0;
};

class RemoteAccess {
 public:
  // Makes the queue pair; connect it through qp() (Connect, or Device::ConnectService). `device`
  // outlives the object. `silence`: a link that carries nothing for so long has failed, if that is
  // less than `timeout`. Unchecked: nobody else has the object yet.
  static Result<std::unique_ptr<RemoteAccess>> Create(
      rnic::Device& device, std::chrono::nanoseconds timeout,
      std::chrono::nanoseconds silence = std::chrono::nanoseconds::max())
      HL_NO_THREAD_SAFETY_ANALYSIS;
  ~RemoteAccess();

  rnic::QueuePair& qp() { return *qp_; }
  // Whether the node's queue or the device is gone, so that every call fails.
  bool broken();

  // kInvalidArgument: outside `memory`. kProtection: the node has taken its keys back.
  // kUnavailable: the node's queue or the device is gone.
  Status Read(const RemoteMemory& memory, uint64_t offset, std::span<std::byte> out);
  Status Write(const RemoteMemory& memory, uint64_t offset, std::span<const std::byte> in);
  // Starts to write `in`, at most 1 KiB, and returns; the next call learns whether it arrived.
  // kBusy: another call, or a write that an earlier call started, is under way; nothing was
  // started.
  Status StartWrite(const RemoteMemory& memory, uint64_t offset, std::span<const std::byte> in);
  // Makes earlier writes durable there, by a READ behind them.
  Status Flush(const RemoteMemory& memory, uint64_t offset);

 private:
  // Long transfers are cut into pieces. So many reads are under way at a time, because each waits
  // for the way to the node and back.
  static constexpr uint32_t kPiece = 256u << 10;
  static constexpr uint32_t kReads = 4;
  static constexpr uint32_t kMaxStarted = 1024;

  RemoteAccess(rnic::Device& device, std::chrono::nanoseconds timeout)
      : device_(device), timeout_(timeout) {}
  Status Transfer(rnic::Opcode opcode, const RemoteMemory& memory, uint64_t offset, uint32_t length)
      HL_REQUIRES(mutex_);
  // `slot`: which part of the bounce buffer is read or written.
  Status Post(rnic::Opcode opcode, const RemoteMemory& memory, uint64_t offset, uint32_t length,
              uint32_t slot = 0) HL_REQUIRES(mutex_);
  // True: the posted request is done.
  Result<bool> Completed() HL_REQUIRES(mutex_);
  Status WaitCompletion() HL_REQUIRES(mutex_);
  Status FinishStarted() HL_REQUIRES(mutex_);

  rnic::Device& device_;
  const std::chrono::nanoseconds timeout_;
  Mutex mutex_;  // one call at a time
  Status broken_ HL_GUARDED_BY(mutex_);
  bool started_ HL_GUARDED_BY(mutex_) = false;  // a StartWrite is under way
  std::unique_ptr<rnic::ProtectionDomain> pd_ HL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<rnic::Buffer> bounce_ HL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<rnic::MemoryRegion> mr_ HL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<rnic::CompletionQueue> cq_ HL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<rnic::QueuePair> qp_;  // also the connection through qp()
};

}  // namespace hyperloop
