// Snapshots: WQEs that are copied out of the ring before they run, and then run as copied
// (EngineOptions::fetch and prefetch_depth). Never at or past the producer index.
//
// May call: Dice.
#pragma once

#include "softrnic/engine/dice.h"
#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

class Snapshots {
 public:
  Snapshots(const EngineOptions& options, Dice& dice) : options_(options), dice_(dice) {}

  // Copies WQEBBs below the producer index: as many as the fetch mode wants and, when executing,
  // all that the WQE at the consumer index has.
  void Take(Qp& qp, bool executing);

 private:
  const EngineOptions& options_;
  Dice& dice_;
};

}  // namespace hyperloop::softrnic
