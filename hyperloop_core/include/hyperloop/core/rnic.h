// rnic:: is one interface over RDMA devices, modelled on verbs objects. Two providers implement it:
// softrnic (softrnic.h) and verbs (verbs.h).
//
// Objects are RAII and move only by unique_ptr. A Device outlives its ProtectionDomains and
// CompletionQueues, a ProtectionDomain its MemoryRegions and QueuePairs, a CompletionQueue the
// QueuePairs that use it. Creation and destruction are control-path calls: slow, thread safe. Post,
// PostReceive and Poll are hot-path calls: no system call while the device is awake, no allocation;
// one thread at a time per object.
//
// After fork() each call fails in the child, and destructors do nothing. Queues and registered
// buffers that a provider allocates are MADV_DONTFORK, and descriptors CLOEXEC.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::rnic {

// --- plain values

enum Access : uint32_t {
  kLocalWrite = 1u << 0,
  kRemoteWrite = 1u << 1,
  kRemoteRead = 1u << 2,
  kRemoteAtomic = 1u << 3,
};

// What "durable" means for a registered range, and so what a flush (READ of at least 1 byte on the
// QP that wrote) does before it answers: kRam nothing, kFile msync of the dirty pages, kPmem
// cache-line write-back and drain.
enum class Media : uint32_t { kRam = 0, kFile = 1, kPmem = 2 };

struct Gid {
  std::array<uint8_t, 16> raw{};
  friend bool operator==(const Gid&, const Gid&) = default;
};

// What a peer needs to connect to a queue pair.
struct QpAddress {
  Gid gid;
  uint32_t qpn = 0;
};

struct Sge {
  uint64_t addr = 0;
  // At least 1: a WQE cannot express a length of 0, because byte_count 0 means 2 GB.
  uint32_t length = 0;
  uint32_t lkey = 0;
};

enum class Opcode : uint8_t {
  kNop,
  kSend,
  kSendImm,
  kWrite,
  kWriteImm,
  kRead,
  kCompareSwap,
  kFetchAdd,
  // Cross-channel only (Caps::cross_channel):
  kWait,  // hold this SQ until `object` (a cqn) has produced more than `index` CQEs (24-bit cyclic)
  kSendEnable,  // let the managed SQ `object` (a qpn) run WQEBBs below `index` (16-bit, exclusive)
  kReceiveEnable,  // the same for a managed RQ
};

struct SendRequest {
  uint64_t id = 0;  // returned in the completion
  Opcode opcode = Opcode::kNop;
  bool signaled = false;
  bool fence = false;  // wait for all earlier READs and atomics of this SQ
  bool solicited = false;
  // kSend*, kWrite*: the SGEs' bytes are copied by Post, so the memory is the caller's again at
  // once and need not be registered (lkeys are ignored). At most QpAttr::max_inline bytes in all.
  bool inline_data = false;
  std::span<const Sge> sges{};
  uint64_t remote_addr = 0;
  uint32_t rkey = 0;
  uint32_t imm = 0;             // host order
  uint64_t compare_or_add = 0;  // kCompareSwap: expected; kFetchAdd: addend
  uint64_t swap = 0;            // kCompareSwap: desired
  uint32_t object = 0;          // kWait: cqn; kSendEnable, kReceiveEnable: qpn
  uint32_t index = 0;
};

struct ReceiveRequest {
  uint64_t id = 0;
  std::span<const Sge> sges{};
};

enum class WcStatus : uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQpOperation,
  kLocalProtection,
  kFlushed,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kRetryExceeded,
  kRnrRetryExceeded,
  kRemoteAborted,
  kOther,
};
std::string_view WcStatusName(WcStatus status);

enum class WcOpcode : uint8_t { kSendSide, kReceive, kReceiveImm, kReceiveWriteImm };

struct Completion {
  uint64_t id = 0;
  WcStatus status = WcStatus::kSuccess;
  WcOpcode opcode = WcOpcode::kSendSide;
  uint32_t byte_length = 0;
  uint32_t imm = 0;  // host order
  uint32_t qpn = 0;
  uint16_t wqe_counter = 0;  // index of the WQE's first WQEBB (send side) or of the receive
};

struct Caps {
  std::string provider;  // "softrnic", "verbs"
  bool cross_channel = false;
  bool ignore_cq_overrun = false;
  bool completion_events = false;
  uint32_t max_sge = 0;
  uint32_t max_inline = 0;  // largest QpAttr::max_inline; 0: no inline data
};

// --- objects

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  // What SGEs and remote addresses count from: the caller's own virtual address.
  virtual uint64_t addr() const = 0;
  virtual uint64_t length() const = 0;
  virtual uint32_t lkey() const = 0;
  virtual uint32_t rkey() const = 0;
};

// Memory that a device can reach, owned by whoever holds the Buffer: zeroed, page aligned, not
// inherited by fork.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual size_t size() const = 0;
};

struct CqAttr {
  uint32_t depth = 256;         // rounded up to a power of two
  bool ignore_overrun = false;  // a CQ used only as a WAIT counter; needs Caps::ignore_cq_overrun
  bool events = false;  // has a completion channel (RequestNotify); needs Caps::completion_events
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  virtual uint32_t cqn() const = 0;
  // Fills `out` from the front with what has completed; returns how many. A dead device reads as
  // kUnavailable.
  virtual Result<size_t> Poll(std::span<Completion> out) = 0;

  // To sleep until something completes, with CqAttr::events: RequestNotify; Poll once more, and
  // only if that finds nothing wait (poll, epoll) for event_fd to be readable; TakeEvents; Poll.
  //
  // The next completion (solicited_only: the next receive that its sender marked solicited, or any
  // error) makes event_fd readable, once; then nothing does until the next request. Completions
  // that Poll returned before the request do not count; one that came before it and was not polled
  // may. Of two requests before the event the wider may count. Same thread rule as Poll.
  // kNotSupported: without CqAttr::events. kUnavailable: the device is dead.
  virtual Status RequestNotify(bool solicited_only) = 0;
  // The same for a caller that needs `completions` (1 to 65,536) more than Poll has returned. A
  // device that can count them makes the event when so many have come, or earlier for an error or a
  // solicited receive; another one makes it at the next completion.
  virtual Status RequestNotifyAfter(uint32_t completions) {
    static_cast<void>(completions);
    return RequestNotify(/*solicited_only=*/false);
  }
  // −1: none. Non-blocking, owned by the CQ, close on exec; to be waited on, never read. Readable
  // for good once the device is dead, where it can tell.
  virtual int event_fd() const = 0;
  // Takes the events that made event_fd readable, without waiting; returns how many (0: none). An
  // event may come for what Poll has returned meanwhile. kUnavailable: the device is dead.
  virtual Result<uint32_t> TakeEvents() = 0;
};

// The longest ack_timeout and link_timeout of QpAttr: what InfiniBand's timeout field can say.
inline constexpr std::chrono::milliseconds kMaxSilence{8'796'093};
// The value of QpAttr::rnr_retry that sets no limit.
inline constexpr uint8_t kForEver = 7;

struct QpAttr {
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  uint32_t send_wqebbs = 64;  // ring size in 64 B blocks, a power of two, at most 32768
  uint32_t recv_wqes = 64;    // ring size in receives, a power of two; 0: none
  uint32_t recv_max_sge = 1;  // rounded up to a power of two
  uint32_t max_read_atomic = 16;
  uint32_t max_inline = 0;  // bytes that a request may carry as inline_data
  // Access flags (kRemoteWrite, kRemoteRead, kRemoteAtomic): what the peer may do through this
  // queue pair, with the keys that it has. Any other access fails with kRemoteAccess at the peer.
  uint32_t remote_access = kRemoteWrite | kRemoteRead | kRemoteAtomic;
  // What happens to a request without an answer. A device with coarser units rounds the times up.
  // A peer that is silent for `ack_timeout` (0: no limit; at most kMaxSilence) is sent the request
  // again, `retry_count` times (0 to 7); then the request fails with kRetryExceeded. So a dead peer
  // is noticed after (retry_count + 1) x ack_timeout.
  uint8_t retry_count = 7;
  std::chrono::milliseconds ack_timeout{64};
  // Over a link between RNIC daemons (softrnic; elsewhere checked and not used), where TCP mends
  // losses in its own time: how long the peer may stay silent before kRetryExceeded, however often
  // requests are sent again meanwhile; at most kMaxSilence. 0: (retry_count + 1) x the larger of
  // ack_timeout and 500 ms, and no limit if ack_timeout is 0, too.
  std::chrono::milliseconds link_timeout{0};
  // A kSend* or kWriteImm for which the peer has no receive: the peer answers how long to wait (its
  // own rnr_timer, at most 491.52 ms). The request is sent again `rnr_retry` times (0 to 6, or
  // kForEver); then it fails with kRnrRetryExceeded.
  uint8_t rnr_retry = kForEver;
  std::chrono::microseconds rnr_timer{640};
  // Cross-channel (Caps::cross_channel):
  bool cross_channel = false;  // may execute WAIT and *_ENABLE ("master")
  bool managed_send = false;   // Post does not start the SQ; an enable or RingDoorbell does
  bool managed_recv = false;
  // For the packets of the device (verbs):
  // Bytes of payload, equal at both ends: 256, 512, 1024, 2048 or 4096. 0: the device's.
  uint32_t mtu = 0;
  uint8_t traffic_class = 0;  // of the IP header; 0: the device's
};

enum class QpState : uint8_t { kReset, kInit, kReadyToReceive, kReadyToSend, kError };

class QueuePair;

// A queue's memory, in mlx5's layout (docs/rnic.md). Only with Caps::cross_channel.
struct RawQueues {
  std::byte* sq = nullptr;  // 64 B aligned
  uint32_t sq_wqebbs = 0;
  std::byte* rq = nullptr;
  uint32_t rq_wqes = 0;
  uint32_t rq_stride = 0;                // bytes
  std::byte* doorbell_record = nullptr;  // be32 receive counter, be32 send counter
  // All of the above lies in one range, registered with the local write right and no other:
  // receives and loopback requests of this device may rewrite it, its peers may not.
  uint64_t addr = 0;
  uint64_t length = 0;
  uint32_t lkey = 0;
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual uint32_t qpn() const = 0;
  virtual QpAddress address() const = 0;
  virtual QpState state() const = 0;
  // RESET → INIT → RTR → RTS towards `peer` (its own address: a loopback QP).
  virtual Status Connect(const QpAddress& peer) = 0;
  // Any state → RESET: outstanding work is dropped without completions; the queue memory stays.
  virtual Status Reset() = 0;

  // Writes the requests behind those already posted and rings the doorbell once (a managed SQ: no
  // doorbell). kNoSpace: the ring lacks room; nothing was posted. kNotSupported: opcode beyond the
  // device. kInvalidArgument: not connected (except a managed SQ), or a request outside the limits.
  // In ERROR: accepted, and completed as flushed.
  virtual Status Post(std::span<const SendRequest> requests) = 0;
  // Also before Connect. kNoSpace, kInvalidArgument: as for Post.
  virtual Status PostReceive(std::span<const ReceiveRequest> requests) = 0;
  // Reclaims SQ ring space up to and including the WQE at `wqe_counter`, for callers that do not
  // poll signaled completions of this SQ themselves; Poll does it for those it returns.
  virtual void Retire(uint16_t wqe_counter) = 0;

  // Cross-channel power; kNotSupported where Caps::cross_channel is false.
  virtual Result<RawQueues> raw_queues() = 0;
  // Tells the device that WQEBBs below `producer_index` may run (16-bit, exclusive): a CPU
  // doorbell, allowed on managed queues too.
  virtual Status RingDoorbell(uint16_t producer_index) = 0;
};

class ProtectionDomain {
 public:
  virtual ~ProtectionDomain() = default;
  // Registers memory of this process. A device in another process can only reach memory that is
  // backed by a file: [addr, addr+length) must then be a shared mapping of `fd` at `fd_offset`
  // (page aligned), which the provider duplicates. fd −1: memory from Device::AllocateBuffer, or a
  // device that needs no file.
  struct Backing {
    int fd = -1;
    uint64_t fd_offset = 0;
    Media media = Media::kRam;
  };
  virtual Result<std::unique_ptr<MemoryRegion>> Register(void* addr, size_t length, uint32_t access,
                                                         const Backing& backing) = 0;
  virtual Result<std::unique_ptr<QueuePair>> CreateQueuePair(const QpAttr& attr) = 0;
};

using Counters = std::map<std::string, uint64_t>;

class Device {
 public:
  virtual ~Device() = default;
  virtual const Caps& caps() const = 0;
  virtual Gid gid() const = 0;
  // The RNIC that serves this device, by a random number that is never 0. Between devices of the
  // same RNIC lies no network. 0: the provider cannot tell.
  virtual uint64_t rnic() const { return 0; }
  virtual Result<std::unique_ptr<ProtectionDomain>> AllocatePd() = 0;
  virtual Result<std::unique_ptr<CompletionQueue>> CreateCq(const CqAttr& attr) = 0;
  virtual Result<std::unique_ptr<Buffer>> AllocateBuffer(size_t size) = 0;
  // False once the device (daemon) is gone or its process is another's (after fork). One load: fit
  // for waiting loops.
  virtual bool alive() const = 0;
  // hw_counters of the port (this emulated host); names in docs/rnic.md.
  virtual Result<Counters> QueryCounters() = 0;
  // Those of the emulated host `host` at the same RNIC, also when it is no longer attached; a host
  // that is attached again under its name counts on. kInvalidArgument: no name of a host.
  // kNotFound: none of that name has been attached. kNotSupported: the provider has no emulated
  // hosts.
  virtual Result<Counters> QueryCountersOf([[maybe_unused]] std::string_view host) {
    return NotSupported("the provider has no emulated hosts");
  }

  // Passive connection set-up: after Publish, whoever reaches the device may Connect a queue pair
  // of his to a fresh responder-only queue pair in `pd` (remote reads only), and gets
  // `private_data`. softrnic: the device answers alone, even for a process that is stopped, so that
  // stopped replicas can be inspected. verbs: a thread of the publishing process answers.
  // kNotSupported on devices without a connection agent.
  virtual Status Publish(std::string_view service, ProtectionDomain& pd,
                         std::span<const std::byte> private_data) = 0;
  // `host`: softrnic: the emulated host's name at the same daemon; verbs: ADDRESS:PORT of the
  // publishing device (verbs::DeviceOptions::service_port). kNotFound: nobody publishes `service`
  // there. kUnavailable (verbs): no answer. Connects `qp` (fresh) and returns the
  // private data.
  virtual Result<std::vector<std::byte>> ConnectService(std::string_view host,
                                                        std::string_view service,
                                                        QueuePair& qp) = 0;
};

}  // namespace hyperloop::rnic
