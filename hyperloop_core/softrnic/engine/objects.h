// The objects inside an Engine: hosts, contexts, memory, completion queues, queue pairs. They are
// plain data on which the parts of the engine (engine_impl.h) work.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "rnic/wqe.h"
#include "softrnic/commands.h"
#include "softrnic/engine/engine.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/remote.h"
#include "softrnic/engine/ring_map.h"

namespace hyperloop::softrnic {

// Counters of a queue pair; a host's are the sums over its queue pairs, living and gone, since
// it got its first client. Names as exported.
// clang-format off
#define HL_QP_COUNTERS(X) \
  X(wqes_fetched) X(wqes_executed) X(nops) X(sends) X(writes) X(reads) X(atomics) X(waits) \
  X(enables) X(read_responses_nonzero) X(bytes_sent) X(bytes_received) X(recv_scatter_bytes) \
  X(ring_bytes_by_scatter) X(ring_bytes_by_other) X(cqes) X(error_cqes) X(rnr_stalls) \
  X(rnr_retries) X(ack_stalls) X(ack_timeouts) \
  X(wait_stalls) X(fence_stalls) X(stale_fetches) X(doorbells) X(media_flushes) X(media_flushed_bytes) \
  X(link_packets_sent) X(link_packets_received) X(link_retransmits) X(link_duplicates)
// clang-format on

struct QpCounters {
#define HL_DECLARE(name) uint64_t name = 0;
  HL_QP_COUNTERS(HL_DECLARE)
#undef HL_DECLARE
};

struct Context;
struct Qp;

// What the contexts of one client have together (ClientLimits), and their place among those that
// have work.
struct Account {
  Qp* ready_head = nullptr;
  Qp* ready_tail = nullptr;
  // kFresh: became ready when it had nothing to do, and goes before those that always have. kOld:
  // had its turn; still listed for a round when it has nothing more to do, so that it has one turn
  // a round, whatever it does.
  enum class Listed : uint8_t { kNo, kFresh, kOld } listed = Listed::kNo;
  Account* next_ready = nullptr;
  ClientNumber client = 0;
  uint32_t contexts = 0;
  uint32_t qps = 0;
  uint32_t cqs = 0;
  uint32_t keys = 0;
  uint32_t umems = 0;
  uint32_t faults = 0;
  uint64_t table_bytes = 0;
  const char* doomed = nullptr;  // why it is to be evicted
};

struct Service {
  Context* context = nullptr;
  struct Pd* pd = nullptr;
  std::vector<uint8_t> private_data;
};

struct Host {
  std::string name;
  std::array<uint8_t, 16> gid{};
  std::map<std::string, Service> services;
  uint32_t contexts = 0;  // the host goes with the last one
  QpCounters retired;     // of queue pairs that are gone
};

struct Pd {
  uint32_t id = 0;
  Context* context = nullptr;
  uint32_t users = 0;
};

struct Umem {
  uint32_t id = 0;
  uint64_t addr = 0;  // client address of the first byte
  uint64_t length = 0;
  std::byte* base = nullptr;
  std::shared_ptr<void> owner;
  uint32_t users = 0;
  int fd = -1;  // of the file behind it, which its user may truncate; -1: cannot happen, or unknown
  uint64_t fd_offset = 0;
  bool waits_for_disk = false;
  std::shared_ptr<std::atomic<bool>> flush_failed;  // FileRange::failed
  uint32_t faults = 0;
  // Pages of no file, put where the file was truncated, lie from here to there: no key may reach
  // them.
  std::byte* lost_begin = nullptr;
  std::byte* lost_end = nullptr;
  RingMap ring_map;                  // empty if it has no rings
  struct MemoryKey* keys = nullptr;  // over it
  Account* account = nullptr;
};

struct MemoryKey {
  uint64_t addr = 0;
  uint64_t length = 0;
  std::byte* base = nullptr;  // engine's address of `addr`
  Pd* pd = nullptr;
  uint32_t access = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  // Set if writes need a look: the memory holds rings, or needs a flush to be durable (which a
  // persistence model asks of any).
  bool has_rings = false;
  bool has_media = false;
  bool poisoned = false;  // its file was truncated
  rnic::Media media = rnic::Media::kRam;
  Umem* umem = nullptr;
  MemoryKey* next_of_umem = nullptr;
  MemoryKey* before_of_umem = nullptr;
};

enum class Armed : uint8_t { kNo, kAny, kSolicited };

struct Cq {
  std::byte* ring = nullptr;
  uint32_t mask = 0;  // CQEs - 1
  uint32_t log_size = 0;
  uint32_t producer = 0;  // free running; its low 24 bits are what WAIT compares
  uint32_t consumer = 0;  // last seen in the doorbell record
  const std::byte* dbrec = nullptr;
  Qp* waiters = nullptr;
  bool ignore_overrun = false;
  bool error = false;
  Armed armed = Armed::kNo;
  bool had_solicited = false;
  uint32_t last_solicited = 0;  // number of the newest CQE that was solicited or an error
  uint32_t cqn = 0;
  uint32_t arm_index = 0;        // register of the UAR page, if `notify`
  std::function<void()> notify;  // null: no completion channel
  Context* context = nullptr;
  Umem* umem = nullptr;
  uint64_t ring_addr = 0;
  uint64_t dbrec_addr = 0;
  uint32_t users = 0;
};

enum class Stall : uint8_t {
  kNone,
  kWait,       // WAIT not met: linked into the CQ's waiters
  kWaitMet,    // the CQ woke it: the WAIT at `consumer` is done
  kRetry,      // no receive at the peer, or no peer: tried again by Retries
  kResponses,  // fence, READ limit or enough under way to a remote peer: woken by a response
  kFailed,     // a WQE that cannot run: its error follows those before it
};

// The request that is to be tried again (Retries).
struct Retry {
  uint8_t why = 0;  // kRnr, kNoAnswer, kFlushing; 0: none
  uint8_t left = 0;
  bool due = false;  // its time is over
  uint64_t request = 0;
  uint64_t deadline = 0;
};

// Memory written through a queue pair and not yet durable: what a READ on it flushes.
struct DirtyRange {
  std::byte* begin;
  std::byte* end;
  rnic::Media media;
  Umem* umem;
};
inline constexpr size_t kMaxDirtyRanges = 16;

// A long WRITE or READ on its way, a turn's bytes at a time; its WQE as it was fetched.
struct Part {
  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint8_t segments = 0;
  uint8_t blocks = 0;
  uint32_t imm = 0;
  uint64_t moved = 0;
  // From the last byte to the first: its target overlaps its source, and lies behind it.
  bool backward = false;
  std::vector<std::byte> wqe;
};

// A WQE whose completion has not happened yet (Transit).
struct Inflight {
  Inflight(uint16_t i, uint8_t op, uint8_t fm_ce_se, uint8_t wqebbs)
      : index(i), opcode(op), flags(fm_ce_se), blocks(wqebbs) {}

  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint8_t segments = 0;
  uint8_t blocks = 1;
  bool local = false;      // WAIT, NOP, enables, malformed WQEs: nothing to deliver
  bool delivered = false;  // the responder has answered: `outcome` counts
  bool gathered = false;   // `payload` was read from memory at execution
  uint8_t outcome = 0;
  uint32_t imm = 0;
  std::vector<std::byte> wqe;
  std::vector<std::byte> payload;  // to the responder
  std::vector<std::byte> answer;   // from it
  // A remote peer's: bytes in all, put into packets, answered; packets without an acknowledgement.
  uint64_t total = 0;
  uint64_t moved = 0;
  uint64_t answered = 0;
  uint32_t packets = 0;
};

// A service on another machine that a queue pair asked for (ServiceAsks).
struct ServiceAsk {
  std::string host, service;
  LinkId link = kNoLink;
  uint64_t nonce = 0;
  uint64_t sent_ns = 0;
  bool answered = false;
  Code code = Code::kOk;
  uint32_t responder = 0;  // queue pair number there
  std::vector<std::byte> answer;
};

// A queue pair, in pieces. QpLife makes, connects and resets it, and may change every member. The
// comment over a piece names the other parts of the engine that change it.
struct Qp {
  // The send queue. Requester and Transit run it, CompletionQueues and Retries wake it, Retries,
  // RemoteRequester and ErrorState stop it.
  struct Send {
    const std::byte* fetch = nullptr;  // where WQEs are decoded: the ring, or the snapshots of it
    Cq* cq = nullptr;
    uint32_t fetch_mask = 0;  // of `fetch`: `mask`, or of fewer snapshots
    uint32_t mask = 0;
    uint16_t consumer = 0;  // WQEBBs
    uint16_t producer = 0;  // doorbells and enables move it
    Stall stall = Stall::kNone;
    bool resume = false;  // the WQE at `consumer` has begun: a WAIT that is met, or `part`
    bool snapshots = false;
    bool deferred = false;  // completions come in later steps: Inflight
    const std::byte* ring = nullptr;
    std::unique_ptr<Part> part;
  };

  // The receive queue, and how requests come. Responder takes receives, Requester enables and
  // flushes them, ErrorState and AdversarialSchedule look for posted ones.
  struct Receive {
    const std::byte* ring = nullptr;
    const std::byte* dbrec = nullptr;
    Cq* cq = nullptr;
    uint32_t mask = 0;
    uint32_t log_stride = 0;
    uint16_t consumer = 0;
    uint16_t producer = 0;    // last seen in the doorbell record
    uint16_t enabled = 0;     // managed: RECV_EN moves it
    uint16_t flush_left = 0;  // receives to flush, once in error
    bool exists = false;
    uintptr_t write_end = 0;  // where the last remote WRITE ended
  };

  // The queue pair that it is connected to. QpTable finds it, and notes a parting.
  struct Peer {
    Qp* cached = nullptr;            // in this engine, and connected back
    std::unique_ptr<Remote> remote;  // null: the peer is in this engine
    std::array<uint8_t, 16> gid{};
    uint32_t qpn = 0;
    bool connected = false;  // `gid` and `qpn` are set
    // The peer (in this engine) was reset after requests had passed between them: on a wire their
    // packet numbers would not fit any more. Until its own RESET nobody answers this one.
    bool orphaned = false;
    uint64_t requests_before = 0;  // that had run when it was connected
  };

  // WQEs that have run and are not complete yet. Transit takes them in and out, RemoteRequester and
  // AdversarialSchedule change entries.
  struct InTransit {
    std::deque<Inflight> inflight;  // in order; the front completes first
    uint32_t outstanding_reads = 0;
    uint32_t max_read_atomic = 1;
    bool failed = false;  // deferred: the WQE that put it into error was told
  };

  // A WAIT that stalled. Requester notes it, Waiters links it.
  struct Wait {
    Cq* cq = nullptr;
    Qp* next = nullptr;
    Qp* prev = nullptr;
    uint32_t index = 0;
    uint8_t flags = 0;
    uint8_t blocks = 1;
  };

  // WQEBBs that were copied out of the ring. Snapshots alone fetches them.
  struct Snapshot {
    std::vector<std::byte> bytes;
    uint16_t fetched = 0;  // WQEBBs below this index are snapshot
  };

  // Memory that was written through it and is not durable yet. Durability alone changes it.
  struct Dirty {
    uint8_t count = 0;
    bool flushes = false;       // `flush` is set
    bool flush_failed = false;  // a range could not be made durable: the next READ says so
    std::array<DirtyRange, kMaxDirtyRanges> ranges{};
    std::shared_ptr<FlushJob> flush;  // under way, or done and not looked at; null: none
  };

  // How long and how often requests are tried. Retries notes one, Transit and ErrorState forget it.
  struct Timers {
    Retry retry;
    uint64_t ack_timeout_ns = 0;
    uint64_t link_timeout_ns = 0;
    uint8_t retry_count = 7;
    uint8_t rnr_retry = 7;
    uint32_t rnr_timer_us = 640;
  };

  // Its end of a connection to a service (kConnectService). Services and ServiceAsks fill it.
  struct ServiceEnd {
    // --- the client's
    uint32_t qpn = 0;  // the responder that was made for it in this engine, 0: none
    std::unique_ptr<ServiceAsk> ask;
    // --- the responder's
    bool responder_only = false;     // made by kConnectService,
    const Account* asker = nullptr;  // of this client; compared only. Null: of another engine
    uint64_t ask_nonce = 0;          // the request that made it,
    uint64_t asked = 0;              // and its place among them
  };

  // --- what every WQE or request touches: close together
  Send send;
  rnic::QpState state = rnic::QpState::kReset;  // ErrorState changes it too
  bool ready = false;                           // in the ReadyList, which changes it
  uint32_t qpn = 0;
  uint32_t flags = 0;
  uint32_t access = 0;  // remote access that its state grants
  Qp* next_ready = nullptr;
  Account* account = nullptr;
  Pd* pd = nullptr;
  Peer peer;
  Receive receive;
  QpCounters count;  // any part counts
  // --- what some touch
  Wait wait;
  Timers timers;
  Dirty dirty;
  InTransit transit;
  Snapshot snapshot;
  // --- the rest
  ServiceEnd service;
  uint32_t look_index = kNotListed;  // in one part of LookList, which changes it
  static constexpr uint32_t kNotListed = ~0u;
  uint32_t doorbell_index = 0;
  Context* context = nullptr;
  Qp* next_of_context = nullptr;
  Qp* before_of_context = nullptr;
  Host* host = nullptr;
  Umem* umem = nullptr;
  CreateQpArgs args{};
};

struct Context {
  ContextId id = kNoContext;
  Account* account = nullptr;
  Host* host = nullptr;
  Qp* first_qp = nullptr;  // of all, responders included
  bool closing = false;
  bool evicted = false;
  UarPage* uar = nullptr;
  uint32_t uar_id = 0;
  uint32_t uar_words = 0;  // summary words in use
  // By register of the UAR page; one of the two at most.
  std::array<Qp*, kMaxQpsPerContext> doorbells{};
  std::array<struct Cq*, kMaxQpsPerContext> arms{};
  // A register nobody has; kMaxQpsPerContext: none is left.
  uint32_t FreeRegister() const {
    uint32_t index = 0;
    while (index < kMaxQpsPerContext && (doorbells[index] != nullptr || arms[index] != nullptr))
      ++index;
    return index;
  }
  void UseRegister(uint32_t index) {
    uar_words = std::max(uar_words, index / 64 + 1);
    __atomic_store_n(&uar->registers[index], 0, __ATOMIC_RELAXED);
  }
  std::map<uint32_t, std::unique_ptr<Pd>> pds;
  std::map<uint32_t, std::unique_ptr<Umem>> umems;
  std::map<uint32_t, struct Cq*> cqs;
  uint32_t responders = 0;  // queue pairs made by kConnectService
};

// Calls `f` for each queue pair of the context; `f` may destroy it.
template <class F>
void ForEachQp(const Context& c, F&& f) {
  for (Qp* qp = c.first_qp; qp != nullptr;) {
    Qp* const next = qp->next_of_context;
    f(*qp);
    qp = next;
  }
}

}  // namespace hyperloop::softrnic
