// Dice: the chance in an engine, all of it from EngineOptions::seed. Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace hyperloop::softrnic {

class Dice {
 public:
  // `chooses`: the schedule is random.
  Dice(uint64_t seed, bool chooses) : random_(seed), chooses_(chooses) {}
  // One of 0 to n-1: any of them in a random schedule, otherwise always 0.
  size_t Pick(size_t n) { return chooses_ ? random_() % n : 0; }
  // A random number in every schedule.
  uint64_t Throw() { return random_(); }

 private:
  std::mt19937_64 random_;
  const bool chooses_;
};

}  // namespace hyperloop::softrnic
