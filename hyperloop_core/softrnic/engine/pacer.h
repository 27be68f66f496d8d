// Pacer: the owner of a clock on which the queues of an Engine run. A model of a device implements
// it, for which each WQE takes time: the engine then runs one WQE at a time, the one that the pacer
// lets run first. Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softrnic/engine/single_steps.h"

namespace hyperloop::softrnic {

class Pacer {
 public:
  // A send queue as it is now.
  struct Queue {
    uint32_t qpn = 0;
    bool managed = false;    // SEND_EN lets it run, and no doorbell
    bool remote = false;     // its peer is in another engine
    bool ready = false;      // it has something to run, and nothing holds it
    uint16_t consumer = 0;   // WQEBBs
    uint16_t producer = 0;   // doorbells and enables move it
    const std::byte* wqe{};  // the block at `consumer`, for which it may not be allowed to run yet
  };

  virtual ~Pacer() = default;
  // Called for every queue before and after each step, so that the pacer sees what has changed.
  virtual void Look(const Queue& queue) = 0;
  // When the next WQE of a queue that is ready can run. The earliest one is chosen.
  virtual uint64_t RunsAt(const Queue& queue) = 0;
  // The WQE is about to run. False: not yet, and the engine has nothing else to do.
  virtual bool Begin(const Queue& queue, uint64_t runs_at) = 0;
  // It has run. `done`: wholly; otherwise the queue waits, or the WQE runs in several steps.
  virtual void End(bool done) = 0;
};

// For EngineTestHooks::steps, and not together with defer_delivery. `pacer` outlives the engine.
MakeSingleSteps PacedBy(Pacer* pacer);

}  // namespace hyperloop::softrnic
