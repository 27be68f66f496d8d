// Group primitives: gWRITE, gCAS, gMEMCPY, gFLUSH over a chain of replicas (HyperLoop §4.2). Their
// semantics, and the reasons for them, are in docs/group-primitives.md.
//
// A Group is the primary's end; a Member is a replica's end, which needs no CPU once armed. Offsets
// are region offsets, the same on every node. Operations take effect on every node in the order of
// submission, each seeing all effects of earlier ones and none of later ones: an operation that
// overwrites what an unacknowledged one still reads or also writes is held back until that one is
// acknowledged.
//
// Thread safety: one thread at a time per object (callers lock). The caller must not change region
// bytes that an unacknowledged operation reads, or writes here (a copy's destination). With
// cpu-polling and cpu-event that would end the group, because a short gWRITE travels with a check
// that was made before the device fetches its bytes. In a forked child every call fails with
// kUnavailable, and destruction leaves the parent's alone.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

inline constexpr uint32_t kMaxGroupSize = 8;
// A slot takes 4 blocks of the fullest ring. A ring has at most 32768 blocks, because its indexes
// have 16 bits and are compared cyclically.
inline constexpr uint32_t kMaxSlots = 8192;
inline constexpr uint32_t kMaxWindow = kMaxSlots / 2;

// How operations reach the replicas. kOffload: down the chain, forwarded by the replicas' RNICs
// alone; needs rnic::Caps::cross_channel. kFanout: the primary writes, flushes and CASes each
// replica itself, without a replica's CPU, on any RC device. kCpuPolling, kCpuEvent: down the
// chain, forwarded by each replica's CPU, which polls or sleeps on a completion channel (the
// Naive-RDMA baselines of HyperLoop §6). The group stops while a replica's process does not run.
enum class Datapath : uint8_t { kOffload, kFanout, kCpuPolling, kCpuEvent };
Result<Datapath> ParseDatapath(std::string_view name);
std::string_view DatapathName(Datapath datapath);

struct Range {
  uint64_t offset = 0;
  uint64_t size = 0;  // 0: absent
};

// One group operation: any of the parts, in this order of effect on every replica: the write lands,
// then the copy runs, then the CAS. Within one operation the write must not overlap the copy's
// source or destination, nor the CAS word.
struct Operation {
  // gWRITE: the primary's bytes of this range appear at every replica. At most kMaxPart bytes.
  Range write;
  // gMEMCPY on every replica and at the primary. At most kMaxPart bytes, in ranges that do not
  // overlap. With fanout the primary's bytes are copied everywhere. They equal a replica's own,
  // unless the source holds a word that only replicas CASed.
  struct Copy {
    uint64_t source = 0;
    uint64_t destination = 0;
    uint64_t size = 0;  // 0: absent
  } copy;
  struct Cas {  // gCAS, on replicas only
    bool present = false;
    uint64_t offset = 0;  // 8 B aligned
    uint64_t expected = 0;
    uint64_t desired = 0;
    uint32_t execute_map = 0;  // bit i: replica i executes
  } cas;
  // Everything submitted so far is durable on every replica before the acknowledgement.
  // Copies and CASes are flushed even if nobody asks, because the flush's answer proves that they
  // ran.
  bool flush = false;
};
inline constexpr uint64_t kMaxPart = 1ull << 30;

using Ticket = uint64_t;  // 1, 2, 3 … in submission order

// How Submit, Wait and WaitAll wait: kPoll looks for completions without end; kEvent sleeps until
// the RNIC signals one, which costs a wake-up (tens of microseconds) and saves the processor;
// kHybrid polls for GroupOptions::poll_time and then sleeps, so that only what takes longer pays
// the wake-up, and an outage takes no processor. Where operations take longer one after another, it
// sleeps at once, and polls now and then to see whether that pays again.
enum class WaitMode : uint8_t { kPoll, kEvent, kHybrid };
std::string_view WaitModeName(WaitMode wait);  // poll, event, hybrid

struct OperationResult {
  // gCAS: the original value at each replica that executed; elsewhere 0.
  std::array<uint64_t, kMaxGroupSize> original{};
};

struct GroupOptions {
  Datapath datapath = Datapath::kOffload;
  uint32_t window = 64;  // unacknowledged operations at most, 1 to kMaxWindow; both ends must agree
  // Per replica: a power of two from max(8, 2·window) to kMaxSlots; 0: SlotsFor(window). Both ends
  // must agree.
  uint32_t slots = 0;
  // The longest wait for an acknowledgement; above 0.
  std::chrono::nanoseconds ack_timeout = std::chrono::seconds(10);
  WaitMode wait = WaitMode::kPoll;  // the others need rnic::Caps::completion_events
  std::chrono::nanoseconds poll_time = std::chrono::microseconds(50);  // kHybrid
  bool check_ordering = true;  // off only for the test that shows why it is on
  // Called over and over while a call waits, whatever `wait` says, e.g. to step an embedded RNIC.
  // Null: the waiting loop only pauses.
  std::function<void()> idle;
  // Called now and then by the thread that waits for an acknowledgement. An error breaks the group.
  // It is for callers who learn sooner than ack_timeout that a replica is gone. Null: not
  // called.
  std::function<Status()> watch = nullptr;
  // What messages call the replicas besides their numbers. Empty: nothing.
  std::vector<std::string> replica_names = {};
  // Links between RNIC daemons that are cut for less than this are waited for. 0: nine tenths of
  // ack_timeout.
  std::chrono::nanoseconds link_timeout{0};
};

// What one end must know of another to connect. The layout is fixed, little-endian and without
// padding: control messages carry these bytes, so a change needs another version of the control
// protocol, which refuses other releases before anything is changed. Connect checks every field of
// what it is given.
struct MemberInfo {
  uint32_t version = 5;
  uint32_t up_qpn = 0, local_qpn = 0, down_qpn = 0;
  std::array<uint8_t, 16> gid{};
  uint64_t region_addr = 0;
  uint64_t region_size = 0;
  uint32_t region_lkey = 0, region_rkey = 0;
  uint32_t position = 0, group_size = 0;
  uint32_t window = 0, slots = 0;
  uint32_t datapath = 0;  // Datapath
  uint32_t ack_qpn = 0;   // offload: towards the primary, 0 at the last replica
  // Offload: the staging buffer of the slots. Cpu-polling and cpu-event: the ring in which messages
  // arrive.
  uint64_t staging_addr = 0;
  uint32_t staging_rkey = 0;
  uint32_t reserved = 0;
  uint64_t rnic = 0;  // rnic::Device::rnic
};
struct PrimaryInfo {
  uint32_t version = 5;
  uint32_t down_qpn = 0, ack_qpn = 0;  // towards the first replica; from the last
  uint32_t group_size = 0;
  std::array<uint8_t, 16> gid{};
  uint64_t ack_addr = 0;  // ack area, one entry a slot
  uint64_t ack_size = 0;
  uint32_t ack_rkey = 0;
  uint32_t datapath = 0;  // Datapath
  uint32_t window = 0, slots = 0;
  // Fanout: towards each replica. Offload: from each replica but the last.
  std::array<uint32_t, kMaxGroupSize> direct_qpn{};
  uint64_t rnic = 0;  // rnic::Device::rnic
};
static_assert(sizeof(MemberInfo) == 104 && std::is_trivially_copyable_v<MemberInfo>);
static_assert(sizeof(PrimaryInfo) == 104 && std::is_trivially_copyable_v<PrimaryInfo>);

struct MemberOptions {
  Datapath datapath = Datapath::kOffload;
  uint32_t position = 0;  // in the chain, 0 is next to the primary
  uint32_t group_size = 1;
  uint32_t window = 64;
  uint32_t slots = 0;  // see GroupOptions

  // For cpu-polling and cpu-event, whose members have a thread each:
  // Makes [offset, offset + size) of the region durable by its media's means, called on that
  // thread. Null: the media needs nothing.
  std::function<Status(uint64_t offset, uint64_t size)> persist = {};
  int cpu = -1;  // the processor that the thread is bound to; −1: any
  // Called once, on that thread, when it gives up: the group stands still from then on. It must not
  // destroy the member, which waits for the thread.
  std::function<void(const Status&)> failed = {};
};

// The replica's end. Create, exchange infos, Connect; from then on its RNIC serves the group and
// this process may sleep or be stopped (offload, fanout), or a thread of its own does (cpu-polling,
// cpu-event). Destruction ends the service: it ends the thread, and then takes `up`, `local`,
// `down` and `ack`, in this order, straight to RESET. Afterwards nothing is written here for the
// group.
class Member {
 public:
  virtual ~Member() = default;
  // `region` is the replicated range and nothing else: at least 64 B at a multiple of 8;
  // offset 0 is its first byte. It needs local write and remote write, read, atomic access, and
  // outlives the Member. kNotSupported: the device has no cross-channel operations (offload), or no
  // completion channels (cpu-event).
  static Result<std::unique_ptr<Member>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                                rnic::MemoryRegion& region,
                                                const MemberOptions& options);
  virtual const MemberInfo& info() const = 0;
  // `chain`: all members in order. Arms every slot and starts what serves the group: the control
  // program (offload), the thread (cpu-*; kNoSpace: no room for one; kInvalidArgument: not on
  // `cpu`). Once: after a failure the member serves nothing and can only be destroyed.
  virtual Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) = 0;
};

// The primary's end. `region` as for Member, of the same size as every replica's, but without
// atomic access: gCAS leaves the primary alone.
class Group {
 public:
  virtual ~Group() = default;
  static Result<std::unique_ptr<Group>> Create(rnic::Device& device, rnic::ProtectionDomain& pd,
                                               rnic::MemoryRegion& region,
                                               const GroupOptions& options, uint32_t group_size);
  virtual const PrimaryInfo& info() const = 0;
  virtual Status Connect(std::span<const MemberInfo> chain) = 0;

  // Starts an operation. Waits (polling, bounded by ack_timeout) while the window is full or an
  // unacknowledged operation conflicts. kInvalidArgument: bad range or alignment, nothing started.
  // kTimedOut, kAborted, kUnavailable, kProtection, kCorruption: the group is broken for good;
  // every unacknowledged ticket is indeterminate.
  virtual Result<Ticket> Submit(const Operation& operation) = 0;
  // The same without waiting: kBusy when it would.
  virtual Result<Ticket> TrySubmit(const Operation& operation) = 0;
  // Waits until all replicas have acknowledged `ticket` and its copy is done here, at most
  // ack_timeout from its submission on. A result is kept until `window` further tickets were
  // submitted.
  virtual Status Wait(Ticket ticket, OperationResult* result = nullptr) = 0;
  virtual Status WaitAll() = 0;
  // Processes what has arrived. Returns the newest ticket such that it and all before it are
  // acknowledged. Checks ack_timeout and the device now and then, so that a loop of Poll ends when
  // a Wait would.
  virtual Result<Ticket> Poll() = 0;
  // The first error, for good; ok while the group works.
  virtual Status status() const = 0;
  virtual uint32_t group_size() const = 0;
  virtual uint64_t region_size() const = 0;
  // Changes the word at `offset` from `expected` to `desired` on all replicas, or on none. If some
  // replicas hold another value, those that changed are put back, and kBusy names one that differs
  // and what it holds (HyperLoop §4.2).
  virtual Status Lock(uint64_t offset, uint64_t expected, uint64_t desired) = 0;

  // One-part operations, as the paper names them.
  Result<Ticket> Write(uint64_t offset, uint64_t size, bool flush) {
    return Submit({.write = {offset, size}, .copy = {}, .cas = {}, .flush = flush});
  }
  Result<Ticket> MemCopy(uint64_t source, uint64_t destination, uint64_t size, bool flush) {
    return Submit({.write = {}, .copy = {source, destination, size}, .cas = {}, .flush = flush});
  }
  Result<Ticket> CompareAndSwap(uint64_t offset, uint64_t expected, uint64_t desired,
                                uint32_t execute_map) {
    return Submit({.write = {},
                   .copy = {},
                   .cas = {true, offset, expected, desired, execute_map},
                   .flush = false});
  }
  // What was submitted before is durable on every replica once acknowledged (READ on both `local`
  // and `down` of each hop).
  Result<Ticket> Flush() { return Submit({.write = {}, .copy = {}, .cas = {}, .flush = true}); }
  // The paper's gFLUSH names a range. It is checked, and advisory: an RNIC's flush drains a queue,
  // not a range, so this makes everything durable that was submitted before. kInvalidArgument: the
  // range is empty or leaves the region.
  Result<Ticket> Flush(uint64_t offset, uint64_t size);
};

// The slots that both ends use for `window` when options leave `slots` 0.
uint32_t SlotsFor(uint32_t window);

}  // namespace hyperloop
