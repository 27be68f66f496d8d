// Engine: the software RNIC's state machine. No threads, no system calls besides a flush to media
// (those that may wait for a disk are a Flusher's) and what a completion channel's `notify` does,
// no clock but EngineOptions::now_ns.
//
// One Engine serves every emulated host handed to it. Its turns go round the clients that have
// work, and then round the queue pairs of one: however many queue pairs a client has, another waits
// for one turn of it. All calls come from one thread (the daemon's engine thread, a test, or a
// simulation). Work arrives through doorbells (UAR pages), enables and completions; Step() executes
// at most one WQE or delivers at most one deferred packet, chosen by the scheduler of
// EngineOptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "softrnic/commands.h"
#include "softrnic/links/link_port.h"

namespace hyperloop::softrnic {

class Flusher;
class PersistenceModel;

using ContextId = uint32_t;
inline constexpr ContextId kNoContext = 0;
inline constexpr size_t kMaxContexts = 1024;  // of an engine
// Who is behind a context: the daemon gives the contexts of one process one number. They have their
// turns and their limits together. 0: a client of its own.
using ClientNumber = uint64_t;

// What one client may hold, so that the others find room. A refusal names the limit.
struct ClientLimits {
  uint32_t queue_pairs = 512;
  uint32_t completion_queues = 1024;
  uint32_t memory_keys = 16384;
  uint32_t mappings = 2048;  // registered pieces of memory
  // Of the tables that tell ring bytes from others: 1/64 of each piece of memory that has rings.
  uint64_t table_bytes = 64 << 20;
  // Faults in truncated files that are mended; then the client is ended.
  uint32_t faults = 256;
  // Of all clients together. The daemon derives it from what the kernel lets a process map.
  uint32_t all_mappings = 1 << 20;
};

struct EngineOptions {
  // Strictness (facts: rnic.md 4.1). Off only to show what a lenient device would let pass.
  bool check_wqe_index = true;
  bool check_qpn = true;
  // How many WQEs below the producer index may be snapshot early. 0: decode at execution.
  uint32_t prefetch_depth = 0;
  // Adversarial modes for tests, all from `seed`; they cost the fast path nothing.
  // kRandom: single steps, chosen at random among all that could happen next.
  enum class Schedule { kRunToStall, kRandom };
  Schedule schedule = Schedule::kRunToStall;
  // When a WQE below the producer (or enabled) index is copied out of the ring, to be run as
  // copied. kLate: when it runs. kEarly: as soon as the index lets it. kRandom: anywhere between.
  enum class Fetch { kLate, kEarly, kRandom };
  Fetch fetch = Fetch::kLate;
  // Requests reach the responder, and answers (READ data, atomics' old values, acknowledgements)
  // the requester, in later steps, in order per queue pair. A payload is read from memory when its
  // WQE runs or when it is delivered. Completions follow the answers, so fences and READ limits
  // bite.
  bool defer_delivery = false;
  // With defer_delivery: WQEs without an answer yet are fetched and checked again now and then, as
  // a retransmission does; and their payloads are read again until delivered.
  bool retransmit = false;
  // With defer_delivery: a request that asks no answer (SEND, WRITE) is acknowledged as late as RC
  // lets it: by an answer or error of one behind it, or when nothing else can happen.
  bool late_acknowledgements = false;
  uint64_t seed = 1;
  // A READ of no bytes touches no memory, so it flushes nothing; on: as if it had read one.
  bool zero_byte_read_flushes = false;
  // What a power failure would leave, for tests; told of every store and flush. Null: none, and
  // nothing on the fast path knows of it. Outlives the engine. Not with `flusher`: it would take a
  // flush for done when it begins.
  PersistenceModel* persistence = nullptr;
  // Flushes files for which UmemMapping::waits_for_disk is set. Null: the engine does, and
  // everybody waits. Outlives the engine.
  Flusher* flusher = nullptr;
  // A steady clock in nanoseconds, for the timers of requests without an answer; read only while
  // there are some. Null: the system's.
  std::function<uint64_t()> now_ns = nullptr;
  // Receives of at most 32 B land in the CQE and not in the receive's memory, as mlx5 does unless
  // told not to: shows what that does to a queue which a receive is to rewrite.
  bool scatter_to_cqe = false;
  // Where the free-running counters of new queues start (on hardware: 0), for tests of wrap-around.
  uint16_t first_wqe = 0;
  uint16_t first_receive = 0;
  uint32_t first_cqe = 0;  // 24 bits
  // Off: SEND_EN lets a managed queue run 4 WQEBBs past the index it names. A device broken on
  // purpose, to see tests fail.
  bool check_cross_channel = true;
  ClientLimits limits = {};
};

// Memory of a client as the engine sees it.
struct UmemMapping {
  std::byte* base = nullptr;  // engine-side address of client_addr
  uint64_t length = 0;
  std::shared_ptr<void> owner;  // unmaps when the last reference goes
  // Of the file, if it may shrink: flushes look whether it still has its length. Owned by `owner`.
  int fd = -1;
  uint64_t fd_offset = 0;
  // A file on a disk: its flush may take as long as the disk likes.
  bool waits_for_disk = false;
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- control path
  // A client process attached to `host` (created on first use, gone with its last client; its gid
  // is never given again). `uar` stays valid until CloseContext.
  Result<ContextId> OpenContext(const std::string& host, UarPage* uar, OpenReply* reply,
                                ClientNumber client = 0);
  // Destroys everything the client created, as a kernel does at process death. Peers' queue pairs
  // see a dead peer: their requests get no answer, and in the end fail with retry exceeded.
  void CloseContext(ContextId context);
  // The same, at most `objects` of them; true: all is gone. Its doorbells count no more from the
  // first call on, and nothing but these two may be called for it.
  bool CloseContextPart(ContextId context, size_t objects);
  // kRegisterUmem, with the mapping already made.
  Result<IdReply> RegisterUmem(ContextId context, const RegisterUmemArgs& args,
                               UmemMapping mapping);
  // kCreateCq with events. `notify` is called at most once for each arming, on the thread that runs
  // the engine, when the CQE is in the ring; it must not block.
  Result<CreateCqReply> CreateEventCq(ContextId context, const CreateCqArgs& args,
                                      std::function<void()> notify);
  // Every other command; validates each field. `text` receives kQueryCounters' lines. Out of
  // memory: the client is evicted; std::bad_alloc if there is none to say so either.
  Status Execute(ContextId context, const Command& command, Reply* reply, std::string* text);
  // kQueryCounters in two parts: the counters as they are now, and (by any thread) their lines.
  std::function<std::string()> Counters(ContextId context);
  // `evict` is told, on the engine's thread, of each context of a client that is served no more,
  // and why: its queues are in error, its commands are refused, and whoever opened the context is
  // to close it. It must neither call the engine nor throw: there may
  // be no memory. `why` is a literal.
  void SetEvict(std::function<void(ContextId, const char* why)> evict);

  // --- links to engines on other machines
  // Before the first context is opened. `port` outlives the engine.
  void AttachPort(LinkPort* port);
  // Queue pairs that connect to a queue pair of emulated host `host`, unless that host is attached
  // here, reach it by `link`. kAlreadyExists: named before; or its GID cannot be told from
  // another's: rename it.
  Status AddPeer(const std::string& host, LinkId link);

  // --- data path
  // Collects doorbells of all contexts and executes up to `budget` steps; returns how many were
  // executed (0: idle). However much the links bring, half of the steps are the queues' own; what
  // links do is counted too, but may exceed the rest.
  size_t Run(size_t budget);
  // One step: see above. False: nothing runnable.
  bool Step();
  // True if any context has an uncollected doorbell, or the port an event. Called before sleeping.
  bool DoorbellPending() const;
  // True if a request is to be tried again: its peer has no receive posted (the store that posts
  // one rings no doorbell), waits for a disk, or has given no answer yet, in this engine or
  // another. Whoever sleeps must come back (call Run) within about a millisecond, which is what the
  // timers are good to.
  bool RetryPending() const;

  // A page fault in a client's memory (its file was truncated) at `address`: maps a page there so
  // that the access ends, marks the keys over it bad; the running WQE then ends with a protection
  // error, and new keys over it are refused. Async-signal-safe. False: not ours.
  bool HandleFault(void* address);

  const EngineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperloop::softrnic
