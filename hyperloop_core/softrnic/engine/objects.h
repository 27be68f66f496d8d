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
#include "softrnic/commands/commands.h"
#include "softrnic/engine/engine.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/qp_counters.h"
#include "softrnic/engine/remote.h"
#include "softrnic/engine/ring_map.h"

namespace hyperloop::softrnic {

struct Context;
struct Qp;

// A client's account: what its contexts hold together (ClientLimits), what they have to do, and the
// client's place in the lists of clients that have something to do.
struct Account {
  Qp* ready_head = nullptr;
  Qp* ready_tail = nullptr;
  // kFresh: the client had nothing to do before; it goes before those that always have something.
  // kOld: the client had its turn. It stays listed for a round even if it has nothing more to do,
  // so that it has one turn a round, whatever it does.
  enum class Listed : uint8_t { kNo, kFresh, kOld } listed = Listed::kNo;
  Account* next_ready = nullptr;
  // Its queue pairs that have packets for a link, and its place among the clients that have some.
  std::deque<uint32_t> to_pump;
  Account* next_pump = nullptr;
  ClientNumber client = 0;
  uint32_t contexts = 0;
  uint32_t qps = 0;
  uint32_t cqs = 0;
  uint32_t keys = 0;
  uint32_t umems = 0;
  uint64_t umem_bytes = 0;
  uint32_t faults = 0;
  uint64_t table_bytes = 0;
  const char* doomed = nullptr;  // why it is to be evicted
  // The number of the last collection that took doorbells of the client, and what these cost.
  uint64_t collection = 0;
  uint32_t doorbell_cost = 0;
};

struct Service {
  Context* context = nullptr;
  struct Pd* pd = nullptr;
  std::vector<uint8_t> private_data;
};

// What the queue pairs of a host have counted that are destroyed. It outlives the host and belongs
// to its name: if a host of this name is attached again, it counts on.
struct Tally {
  QpCounters retired;
  uint64_t left = 0;  // hosts that had ended when this one did; 0: the host is attached
};

struct Host {
  std::string name;
  std::array<uint8_t, 16> gid{};
  std::map<std::string, Service> services;
  uint32_t contexts = 0;  // the host ends with the last one
  Tally* tally = nullptr;
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
  int fd = -1;  // of the file behind it, if a user may truncate it (UmemMapping)
  uint64_t fd_offset = 0;
  bool waits_for_disk = false;
  std::shared_ptr<std::atomic<bool>> flush_failed;  // FileRange::failed
  uint32_t faults = 0;
  // Where the file was truncated, zeroed pages take its place. All of them lie in this range, into
  // which no new key may reach.
  std::byte* lost_begin = nullptr;
  std::byte* lost_end = nullptr;
  RingMap ring_map;                  // empty if it has no rings
  struct MemoryKey* keys = nullptr;  // the keys over it
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
  // Set if Durability must look at writes: the memory holds rings, or it needs a flush to be
  // durable (with a DurabilityWatch, any memory does).
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
  uint32_t consumer = 0;  // as last seen in the doorbell record
  const std::byte* dbrec = nullptr;
  Qp* waiters = nullptr;
  bool ignore_overrun = false;
  bool error = false;
  Armed armed = Armed::kNo;
  uint32_t armed_for = 0;  // kAny: number of the CQE that makes the event
  bool had_urgent = false;
  uint32_t last_urgent = 0;  // number of the newest CQE that was solicited or an error
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
  kWait,       // a WAIT is not met; the queue is linked into the CQ's waiters
  kWaitMet,    // the CQ woke the queue: the WAIT at `consumer` is met
  kRetry,      // the peer has no receive, waits for a disk or is not there; Retries tries again
  kResponses,  // a response must come first (Transit::Blocked); it wakes the queue
  kFailed,     // a WQE failed; its error is reported once those before it are complete
};

// The request that is to be tried again (Retries).
struct Retry {
  uint8_t why = 0;        // kRnr, kNoAnswer, kFlushing; 0: none
  uint8_t left = 0;       // tries
  bool due = false;       // `deadline` has passed
  uint64_t request = 0;   // its number
  uint64_t deadline = 0;  // in nanoseconds of Clock
};

// Memory that was written through a queue pair and is not durable yet. A READ on it flushes that.
struct DirtyRange {
  std::byte* begin;
  std::byte* end;
  rnic::Media media;
  Umem* umem;
};
inline constexpr size_t kMaxDirtyRanges = 16;

// A long SEND, WRITE or READ under way, which moves a turn's bytes at a time.
struct Part {
  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint8_t segments = 0;
  uint8_t blocks = 0;
  uint32_t imm = 0;
  uint64_t moved = 0;
  // It moves from the last byte to the first, because its target overlaps its source and lies
  // behind it.
  bool backward = false;
  std::vector<std::byte> wqe;  // as it was fetched
};

// A WQE whose completion has not happened yet (Transit).
struct Inflight {
  Inflight(uint16_t i, uint8_t op, uint8_t fm_ce_se) : index(i), opcode(op), flags(fm_ce_se) {}

  uint16_t index = 0;
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint8_t segments = 0;
  bool local = false;      // WAIT, NOP, enables, malformed WQEs: nothing to deliver
  bool delivered = false;  // the responder has answered, and `outcome` is set
  bool gathered = false;   // `payload` was read from memory at execution
  uint8_t outcome = 0;
  uint32_t imm = 0;
  std::vector<std::byte> wqe;
  std::vector<std::byte> payload;  // to the responder
  std::vector<std::byte> answer;   // from it
  // With a remote peer: all bytes, bytes put into packets, bytes answered, and packets without an
  // acknowledgement.
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
  uint32_t responder = 0;  // the queue pair number there
  std::vector<std::byte> answer;
};

// A queue pair, in pieces. QpLife makes, connects and resets it, and may change every member. The
// comment over each piece names the other parts of the engine that change that piece.
struct Qp {
  // The send queue. Requester and Transit run it, CompletionQueues and Retries wake it, Retries,
  // RemoteRequester and ErrorState stop it.
  struct Send {
    const std::byte* fetch = nullptr;  // where WQEs are decoded: the ring, or snapshots of it
    Cq* cq = nullptr;
    uint32_t fetch_mask = 0;  // one less than the WQEBBs at `fetch`
    uint32_t mask = 0;
    uint16_t consumer = 0;  // WQEBBs
    uint16_t producer = 0;  // doorbells and enables move it
    Stall stall = Stall::kNone;
    bool resume = false;  // the WQE at `consumer` has begun: a WAIT that is met, or `part`
    bool snapshots = false;
    bool deferred = false;  // completions come in later steps (Inflight)
    const std::byte* ring = nullptr;
    std::unique_ptr<Part> part;
  };

  // The receive queue and the requests of the peer. Responder takes receives, Requester enables and
  // flushes them, ErrorState and SingleSteps look for posted ones.
  struct Receive {
    const std::byte* ring = nullptr;
    const std::byte* dbrec = nullptr;
    Cq* cq = nullptr;
    uint32_t mask = 0;
    uint32_t log_stride = 0;
    uint16_t consumer = 0;
    uint16_t producer = 0;    // as last seen in the doorbell record
    uint16_t enabled = 0;     // of a managed queue; RECV_EN moves it
    uint16_t flush_left = 0;  // receives to flush, in the error state
    bool exists = false;
    uintptr_t write_end = 0;  // where the last remote WRITE ended
  };

  // The queue pair that it is connected to. QpTable finds the peer, and notes a disconnection.
  struct Peer {
    Qp* cached = nullptr;            // the peer, if it is in this engine and connected back
    std::unique_ptr<Remote> remote;  // null: the peer is in this engine
    std::array<uint8_t, 16> gid{};
    uint32_t qpn = 0;
    bool connected = false;  // `gid` and `qpn` are set
    // The peer, in this engine, was reset after requests had passed between the two. On a wire
    // their packet numbers would not fit any more, so nobody answers this queue pair until it is
    // reset too.
    bool orphaned = false;
    uint64_t requests_before = 0;  // RequestsRun when it was connected
  };

  // WQEs that have run and are not complete yet. Transit takes them in and out, RemoteRequester and
  // SingleSteps change entries.
  struct InTransit {
    std::deque<Inflight> inflight;  // in order; the front completes first
    uint32_t outstanding_reads = 0;
    uint32_t max_read_atomic = 1;
    bool failed = false;  // the error of the WQE that failed was reported
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

  // Memory that was written through the queue pair and is not durable yet. Durability alone changes
  // it.
  struct Dirty {
    uint8_t count = 0;
    bool flushes = false;       // `flush` is set
    bool flush_failed = false;  // a range could not be made durable; the next READ reports it
    std::array<DirtyRange, kMaxDirtyRanges> ranges{};
    std::shared_ptr<FlushJob> flush;  // under way, or done but not looked at yet; null: none
  };

  // How long and how often requests are tried. Retries notes a request, Transit and ErrorState
  // forget it.
  struct Timers {
    Retry retry;
    uint64_t ack_timeout_ns = 0;
    uint64_t link_timeout_ns = 0;
    uint8_t retry_count = 7;
    uint8_t rnr_retry = rnic::kForEver;
    uint32_t rnr_timer_us = 640;
  };

  // One end of a connection to a service (kConnectService). Services and ServiceAsks fill it.
  struct ServiceEnd {
    // --- at the client
    uint32_t qpn = 0;  // of the responder that was made for it in this engine; 0: none
    std::unique_ptr<ServiceAsk> ask;
    // --- at the responder
    bool responder_only = false;  // the queue pair was made for kConnectService
    // The client that asked, which is only compared. Null: it is in another engine.
    const Account* asker = nullptr;
    uint64_t ask_nonce = 0;  // of the request that made it
    uint64_t asked = 0;      // the place of that request among all such requests
  };

  // --- what every WQE or request touches; these members lie close together
  Send send;
  rnic::QpState state = rnic::QpState::kReset;  // ErrorState changes it too
  bool ready = false;                           // in the ReadyList, which changes this
  uint32_t qpn = 0;
  uint32_t flags = 0;
  uint32_t access = 0;  // the remote access that it grants
  Qp* next_ready = nullptr;
  Account* account = nullptr;
  Pd* pd = nullptr;
  Peer peer;
  Receive receive;
  QpCounters count;  // every part may count
  // --- what some of them touch
  Wait wait;
  Timers timers;
  Dirty dirty;
  InTransit transit;
  Snapshot snapshot;
  // --- the rest
  ServiceEnd service;
  uint32_t look_index = kNotListed;  // in one part of LookList, which changes this
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
  Qp* first_qp = nullptr;  // of all its queue pairs, responders included
  bool closing = false;
  bool evicted = false;
  UarPage* uar = nullptr;
  uint32_t uar_words = 0;  // summary words in use
  // Doorbells of a summary word that were taken and are still to be carried out.
  struct Rung {
    uint32_t word = 0;
    uint64_t bits = 0;
  } rung;
  // By register of the UAR page. Each register is in use by a queue pair, by a completion queue, or
  // by none.
  std::array<Qp*, kMaxQpsPerContext> doorbells{};
  std::array<struct Cq*, kMaxQpsPerContext> arms{};
  // A register that is not in use. kMaxQpsPerContext: none is left.
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
