// Snapshots copies WQEs out of the ring before they run; they then run as copied
// (EngineTestHooks::fetch and EngineOptions::prefetch_depth). It copies nothing at or past the
// producer index.
//
// May call: Dice.
#pragma once

#include "softrnic/engine/dice.h"
#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

class Snapshots {
 public:
  Snapshots(const EngineOptions& options, Dice& dice) : options_(options), dice_(dice) {}

  // Copies WQEBBs below the producer index, as many as the fetch mode wants. `executing`: also all
  // of the WQE at the consumer index, which is about to run.
  void Take(Qp& qp, bool executing);

 private:
  const EngineOptions& options_;
  Dice& dice_;
};

}  // namespace hyperloop::softrnic
