// Engine: the software RNIC's state machine. No threads, no system calls besides a flush to media,
// no clock of its own.
//
// One Engine serves every emulated host handed to it. All calls come from one thread (the daemon's
// engine thread, a test, or a simulation). Work arrives through doorbells (UAR pages), enables and
// completions; Step() executes at most one WQE or delivers at most one deferred packet, chosen by
// the scheduler of EngineOptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"

namespace hyperloop::softrnic {

struct EngineOptions {
  // Strictness (facts: rnic.md 4.1). Off only to show what a lenient device would let pass.
  bool check_wqe_index = true;
  bool check_qpn = true;
  // How many WQEs below the producer index may be snapshot early. 0: decode at execution.
  uint32_t prefetch_depth = 0;
  // Adversarial modes for tests: WQEs are chosen from all runnable queues at random, packets and
  // READ/atomic responses are delivered at a random later step (per-QP order kept), payloads are
  // gathered either at execution or at delivery, and fetches happen as early or as late as the
  // rules allow, all from `seed`.
  enum class Schedule { kRunToStall, kRandom };
  Schedule schedule = Schedule::kRunToStall;
  enum class Fetch { kLate, kEarly, kRandom };
  Fetch fetch = Fetch::kLate;
  bool defer_delivery = false;
  uint64_t seed = 1;
  bool check_cross_channel =
      true;  // off: managed queues run past the enabled index (negative control only)
};

using ContextId = uint32_t;
inline constexpr ContextId kNoContext = 0;

// Memory of a client as the engine sees it.
struct UmemMapping {
  std::byte* base = nullptr;  // engine-side address of client_addr
  uint64_t length = 0;
  std::shared_ptr<void> owner;  // unmaps when the last reference goes
};

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- control path
  // -------------------------------------------------------------------------------------------------
  // A client process attached to `host` (created on first use). `uar` stays valid until
  // CloseContext.
  Result<ContextId> OpenContext(const std::string& host, UarPage* uar, OpenReply* reply);
  // Destroys everything the client created, as a kernel does at process death. Peers' queue pairs
  // see a dead peer: their next request fails with transport retry exceeded.
  void CloseContext(ContextId context);
  // kRegisterUmem, with the mapping already made.
  Result<IdReply> RegisterUmem(ContextId context, const RegisterUmemArgs& args,
                               UmemMapping mapping);
  // Every other command; validates each field. `text` receives kQueryCounters' lines.
  Status Execute(ContextId context, const Command& command, Reply* reply, std::string* text);

  // --- data path
  // ----------------------------------------------------------------------------------------------------
  // Collects doorbells of all contexts and executes up to `budget` steps; returns how many were
  // executed (0: idle).
  size_t Run(size_t budget);
  // One step: see above. False: nothing runnable.
  bool Step();
  // True if any context has an uncollected doorbell. One load per context: called before sleeping.
  bool DoorbellPending() const;
  // True if a sender waits for its peer to post a receive. That is a store to memory which rings no
  // doorbell, so whoever sleeps must come back (call Run) within the RNR timer, about a
  // millisecond.
  bool RetryPending() const;

  // A page fault in a client's memory (its file was truncated) at `address`: maps a page there so
  // that the access ends, marks the keys over it bad; the running WQE then ends with a protection
  // error. Async-signal-safe. False: not ours.
  bool HandleFault(void* address);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hyperloop::softrnic
