// Dice: the random choices of an engine, drawn from EngineOptions::seed. What clients must not
// guess comes from RandomNumber instead. Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace hyperloop::softrnic {

class Dice {
 public:
  // `chooses`: whether Pick is random (EngineOptions::Schedule::kRandom).
  Dice(uint64_t seed, bool chooses) : random_(seed), chooses_(chooses) {}
  // A number from 0 to n-1: a random one if the schedule is random, otherwise 0.
  size_t Pick(size_t n) { return chooses_ ? random_() % n : 0; }
  // A random number in every schedule.
  uint64_t Throw() { return random_(); }

 private:
  std::mt19937_64 random_;
  const bool chooses_;
};

}  // namespace hyperloop::softrnic
