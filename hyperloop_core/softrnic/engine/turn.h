// Turn: what one queue may do at a time before other clients get their turn, and what it has cost.
// Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hyperloop::softrnic {

inline constexpr uint64_t kTurnBytes = 16 << 10;
inline constexpr size_t kTurnSteps = 16;
inline constexpr uint32_t kPiecesPerStep = 16;  // of a WQE or a receive; more count as more steps
inline constexpr uint64_t kBytesPerStep = kTurnBytes / kTurnSteps;

class Turn {
 public:
  // A queue begins its turn.
  void Begin() { extra_ = 0; }
  // The turn costs more than its steps: for a flush, or for a WQE or receive of many pieces.
  void AddSteps(size_t steps) { extra_ += steps; }
  void AddPieces(uint32_t pieces) {
    if (pieces > kPiecesPerStep) [[unlikely]]
      extra_ += pieces / kPiecesPerStep;
  }
  size_t extra() const { return extra_; }
  // The turn took so many steps, extra ones included, and moved so many bytes.
  void End(size_t steps, uint64_t bytes) { work_ += steps + bytes / kBytesPerStep; }

  // The steps, and the bytes as steps, of all turns since the doorbells were collected.
  size_t work() const { return work_; }
  void ForgetWork() { work_ = 0; }

 private:
  size_t extra_ = 0;
  size_t work_ = 0;
};

}  // namespace hyperloop::softrnic
