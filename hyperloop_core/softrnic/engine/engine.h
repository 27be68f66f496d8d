// Engine: the software RNIC's state machine. It starts no thread and reads no clock but
// EngineOptions::now_ns. While it runs queues of this machine it makes no system call except for
// flushes to media (a Flusher makes those that may wait for a disk), for faults in truncated files,
// and for what a completion channel's `notify` does.
//
// One Engine serves all emulated hosts that are attached to it. The clients that have work take
// turns, and so do the queue pairs of one client: however many queue pairs a client has, another
// client waits for one turn of it. Calls come one at a time (from whoever runs the EngineLoop, a
// test, or a simulation); HandleFault alone also runs in a signal handler within one. Work arrives
// through doorbells (UAR pages), enables, completions and links. Run() and Step() execute it. Tests
// and models can choose what happens next (EngineTestHooks::steps).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "softrnic/commands/commands.h"
#include "softrnic/engine/qp_counters.h"
#include "softrnic/engine/test_hooks.h"
#include "softrnic/links/link_port.h"

namespace hyperloop::softrnic {

class Flusher;

using ContextId = uint32_t;
inline constexpr ContextId kNoContext = 0;
inline constexpr size_t kMaxContexts = 1024;  // of an engine
// Names the client behind a context. The contexts of one client share its turns and its limits. The
// daemon gives all contexts of one process the same number. 0: the context is a client of its own.
using ClientNumber = uint64_t;

// What one client may hold, so that the others find room. A refusal names the limit.
struct ClientLimits {
  uint32_t queue_pairs = 512;
  uint32_t completion_queues = 1024;
  uint32_t memory_keys = 16384;
  uint32_t mappings = 2048;                   // registered pieces of memory
  uint64_t mapped_bytes = uint64_t{1} << 40;  // of these pieces together
  // Of the tables that tell ring bytes from others: 1/64 of each piece of memory that has rings.
  uint64_t table_bytes = 64 << 20;
  // Faults in truncated files that are mended; one more evicts the client.
  uint32_t faults = 256;
  // Of all clients together. The daemon derives it from what the kernel lets a process map.
  uint32_t all_mappings = 1 << 20;
  uint64_t all_mapped_bytes = uint64_t{1} << 46;  // half of what a process can map
};

struct EngineOptions {
  // How many WQEBBs from the consumer index on, as far as the producer index, are copied out of the
  // ring early, at least. 0, with EngineTestHooks::Fetch::kLate: a
  // WQE is read where it lies, when it runs.
  uint32_t prefetch_depth = 0;
  // Flushes the files for which UmemMapping::waits_for_disk is set; outlives the engine. Null: the
  // engine flushes them itself, and all clients wait.
  Flusher* flusher = nullptr;
  // A steady clock in nanoseconds, for timers: of requests without an answer, and of links. Null:
  // the system's.
  std::function<uint64_t()> now_ns = nullptr;
  ClientLimits limits = {};
  EngineTestHooks test = {};
};

// Memory of a client, as it is mapped for the engine.
struct UmemMapping {
  std::byte* base = nullptr;  // engine-side address of client_addr
  uint64_t length = 0;
  std::shared_ptr<void> owner;  // unmaps the memory when the last reference is dropped
  // The file behind the memory, if it may shrink: a flush checks that it still has its length. -1:
  // none. `owner` owns the descriptor. `fd_offset`: where `base` is in the file.
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
  // OpenContext, RegisterUmem and CreateEventCq throw std::bad_alloc if memory runs out.

  // Attaches a client to `host`. The first context of a host creates it and the last one to close
  // ends it; its GID is never given again. `uar` must stay valid until the context is closed.
  // kInvalidArgument: a bad host name, or no `uar`. kNoSpace: too many contexts or hosts. kAborted:
  // the client was evicted for its faults (ClientLimits::faults).
  Result<ContextId> OpenContext(const std::string& host, UarPage* uar, OpenReply* reply,
                                ClientNumber client = 0);
  // Client number `client`, which has no open context, does not come again. Until then its faults
  // in truncated files are remembered, and OpenContext refuses it if they were too many.
  void ForgetClient(ClientNumber client);
  // Destroys everything the client created, as a kernel does at process death. Peers' queue pairs
  // see a dead peer: their requests get no answer, and in the end fail with retry exceeded.
  void CloseContext(ContextId context);
  // Does the same for at most `objects` objects at a time. True: the context is closed. From the
  // first call on the engine ignores the context's doorbells, and only CloseContext and
  // CloseContextPart may be called for it.
  bool CloseContextPart(ContextId context, size_t objects);
  // The command kRegisterUmem, whose mapping the caller has made. kNotFound: no such context.
  // kInvalidArgument: a length or alignment. kNoSpace: a limit.
  Result<IdReply> RegisterUmem(ContextId context, const RegisterUmemArgs& args,
                               UmemMapping mapping);
  // The command kCreateCq with events. `notify` is called at most once for each arming, on the
  // thread that runs the engine, when the CQE is in the ring; it must not block.
  Result<CreateCqReply> CreateEventCq(ContextId context, const CreateCqArgs& args,
                                      std::function<void()> notify);
  // Every other command; validates each field. `text` receives the lines of kQueryCounters. If
  // memory runs out, the client is evicted and the result is kNoSpace; std::bad_alloc is thrown if
  // there is no memory for that message either.
  Status Execute(ContextId context, const Command& command, Reply* reply, std::string* text);
  // kQueryCounters in two parts: this call copies the counters, and the function that it returns
  // (which any thread may call) makes their lines. kNotFound: no such context, or no host of that
  // name has been attached.
  Result<std::function<std::string()>> Counters(ContextId context, const QueryCountersArgs& args);
  // The names of the emulated hosts that are attached now.
  std::vector<std::string> Hosts() const;
  // The counters of one of them: the sums over all queue pairs that it has had since its first
  // client came.
  struct HostCounters {
    QpCounters sum;
    uint64_t queue_pairs = 0;  // that it has now
  };
  // None: no such host is attached.
  std::optional<HostCounters> CountersOf(const std::string& host) const;
  // How many contexts are served.
  size_t contexts() const;
  // `evict` is called on the engine's thread for each context of a client that is evicted: its
  // queues are in error, Execute refuses its commands, and whoever opened the context must close
  // it. `why` is a literal. `evict` must neither call the engine nor throw, and must do without
  // memory.
  void SetEvict(std::function<void(ContextId, const char* why)> evict);

  // --- links to engines on other machines
  // Called before the first context is opened, if at all. `port` outlives the engine.
  void AttachPort(LinkPort* port);
  // Queue pairs that connect to a queue pair of the emulated host `host` reach it by `link`, unless
  // that host is attached here. kAlreadyExists: the host was named before, or its GID prefix (a
  // hash of its name) is another peer's; rename it then.
  Status AddRoute(const std::string& host, LinkId link);

  // --- data path
  // Collects the doorbells of all contexts and executes up to `budget` steps (a WQE, a piece of a
  // long one, or a packet). Returns how many it executed; 0: there was nothing to do. Links never
  // take more than half of the budget from the queues. Their steps are counted too, and doorbells
  // that start nothing count as some, so the result may exceed `budget`.
  size_t Run(size_t budget);
  // Run(1). False: there was nothing to do.
  bool Step();
  // True if any context has an uncollected doorbell, or the port an event. Called before sleeping.
  bool DoorbellPending() const;
  // True if a request is to be tried again: its peer has no receive posted (the store that posts
  // one rings no doorbell), waits for a disk, or has given no answer yet, in this engine or
  // another. A caller that sleeps must then call Run within about a millisecond, the precision of
  // the timers.
  bool RetryPending() const;

  // Handles a page fault at `address` in a client's memory whose file was truncated. Maps zeroed
  // pages there so that the access ends, and marks the keys over them bad: the running WQE ends
  // with a protection error, and new keys over that memory are refused. Called in a signal handler
  // on the thread that runs the engine. False: `address` is in no client's memory, or no page could
  // be mapped.
  bool HandleFault(void* address);

  const EngineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperloop::softrnic
