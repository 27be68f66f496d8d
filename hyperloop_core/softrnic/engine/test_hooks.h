// EngineTestHooks: what only tests and models set in the options of an engine. Left as it is, it
// costs the fast path nothing.
#pragma once

#include <cstdint>

#include "softrnic/engine/single_steps.h"

namespace hyperloop::softrnic {

class DurabilityWatch;

struct EngineTestHooks {
  // Whether a WQE's header must name the WQE's own index and queue number. Off only to show what a
  // lenient device would let pass.
  bool check_wqe_index = true;
  bool check_qpn = true;
  // Not null: the engine runs by the single steps that this makes.
  MakeSingleSteps steps = nullptr;
  // When a WQE below the producer (or enabled) index is copied out of the ring, to be run as
  // copied. kLate: when it runs. kEarly: as soon as the index lets it. kRandom: anywhere between.
  enum class Fetch { kLate, kEarly, kRandom };
  Fetch fetch = Fetch::kLate;
  // Requests reach the responder, and answers (READ data, atomics' old values, acknowledgements)
  // the requester, in later steps, in order per queue pair. A payload is read from memory when its
  // WQE runs or when it is delivered. Completions follow the answers, so fences and READ limits
  // hold WQEs back. Needs `steps` that deliver: RandomSteps or FirstFoundSteps.
  bool defer_delivery = false;
  // With defer_delivery: WQEs without an answer yet are now and then fetched and checked again, as
  // a retransmission does. Their payloads are read again until they are delivered.
  bool retransmit = false;
  // With defer_delivery: a request that asks no answer (SEND, WRITE) is acknowledged as late as RC
  // lets it: by an answer to a later request, by a later error, or when nothing else can happen.
  bool late_acknowledgements = false;
  // Of all random choices.
  uint64_t seed = 1;
  // Off: a READ of no bytes touches no memory, so it flushes nothing. On: it flushes like any READ.
  bool zero_byte_read_flushes = false;
  // Is told of every store and flush; outlives the engine. Not together with a Flusher: a flush
  // counts as done when it begins.
  DurabilityWatch* watch = nullptr;
  // Receives of at most 32 B land in the CQE and not in the receive's memory, as on mlx5 by
  // default. Tests show with it what that does to a queue that a receive is to rewrite.
  bool scatter_to_cqe = false;
  // Where the free-running counters of new queues start (on hardware: 0), for tests of wrap-around.
  uint16_t first_wqe = 0;
  uint16_t first_receive = 0;
  uint32_t first_cqe = 0;  // 24 bits
  // Off: SEND_EN lets a managed queue run 4 WQEBBs past the index that it names. Such a device is
  // broken on purpose: tests that would notice it must fail.
  bool check_cross_channel = true;
};

}  // namespace hyperloop::softrnic
