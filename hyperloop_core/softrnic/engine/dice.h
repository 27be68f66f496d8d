// Dice: the random choices of an engine, drawn from EngineTestHooks::seed. What clients must not
// guess comes from RandomNumber instead. Calls nothing of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace hyperloop::softrnic {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  // From now on Pick is random.
  void LetChoose() { chooses_ = true; }
  // A number from 0 to n-1: a random one after LetChoose, otherwise 0.
  size_t Pick(size_t n) { return chooses_ ? random_() % n : 0; }
  // A random number, always.
  uint64_t Throw() { return random_(); }

 private:
  std::mt19937_64 random_;
  bool chooses_ = false;
};

}  // namespace hyperloop::softrnic
