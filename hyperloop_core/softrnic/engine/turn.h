// Turn: how much one queue may do before other clients get their turn, and what a turn has cost.
// Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop::softrnic {

// A queue's turn ends after so many bytes, or so many steps. A WQE is one step; a flush adds some,
// and so do many pieces of memory.
inline constexpr uint64_t kTurnBytes = 16 << 10;
inline constexpr size_t kTurnSteps = 16;
// A WQE or receive with more pieces of memory counts as more steps.
inline constexpr uint32_t kPiecesPerStep = 16;
inline constexpr uint64_t kBytesPerStep = kTurnBytes / kTurnSteps;

class Turn {
 public:
  // Begins a queue's turn.
  void Begin() { extra_ = 0; }
  // Adds to the turn's cost: for a flush, a fault, or a WQE or receive of many pieces.
  // Async-signal-safe.
  void AddSteps(size_t steps) { extra_ = extra_ + steps; }
  void AddPieces(uint32_t pieces) {
    if (pieces > kPiecesPerStep) [[unlikely]]
      AddSteps(pieces / kPiecesPerStep);
  }
  size_t extra() const { return extra_; }
  // Ends the turn, which took `steps` steps (extra ones included) and moved `bytes` bytes.
  void End(size_t steps, uint64_t bytes) { work_ += steps + bytes / kBytesPerStep; }

  // The steps, and the bytes as steps, of all turns since the doorbells were collected.
  size_t work() const { return work_; }
  void ForgetWork() { work_ = 0; }

 private:
  volatile size_t extra_ = 0;
  size_t work_ = 0;
};

}  // namespace hyperloop::softrnic
