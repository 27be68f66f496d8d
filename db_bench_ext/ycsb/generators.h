// The random choices of YCSB's core workloads (Cooper et al., Benchmarking Cloud Serving Systems
// with YCSB, SoCC 2010, section 4).
//
// Zipfian numbers come from the algorithm of Gray et al., Quickly Generating Billion-Record
// Synthetic Databases, SIGMOD 1994, section 3.2: one uniform number and at most one power each. Not
// thread safe: each thread has its own.
#pragma once

#include <cstdint>
#include <random>

namespace hyperloop::ycsb {

using Random = std::mt19937_64;

inline constexpr double kZipfianConstant = 0.99;

// In [0, 1).
double Uniform(Random& random);
// In [0, n); n at least 1.
uint64_t UniformBelow(Random& random, uint64_t n);
// Σ 1/i^theta for i = 1 … n, theta in (0, 1): in constant time beyond a thousand terms
// (Euler-Maclaurin), exact to 1e-12.
double Zeta(uint64_t n, double theta);
// FNV-1a over the 8 octets of `value`, the lowest first.
uint64_t FnvHash(uint64_t value);

// Draws ranks 0, 1, 2 …: rank r with a probability proportional to 1/(r+1)^theta. The algorithm is
// exact for ranks 0 and 1 and approximate beyond.
class Zipfian {
 public:
  // `items` at least 2.
  explicit Zipfian(uint64_t items, double theta = kZipfianConstant);
  uint64_t Next(Random& random) const;
  // More items than before; costs one step for each new one.
  void Grow(uint64_t items);
  uint64_t items() const { return items_; }

 private:
  void Derive();
  const double theta_, alpha_, two_items_;
  uint64_t items_;
  double all_items_;
  double eta_ = 0;
};

// Zipfian popularity, with the popular items scattered over all items. As in YCSB, ranks of a space
// of ten billion are hashed into `items`, so that the popularity of an item does not depend on the
// number of items.
class ScrambledZipfian {
 public:
  explicit ScrambledZipfian(uint64_t items) : items_(items), ranks_(kRanks) {}
  // In [0, items).
  uint64_t Next(Random& random) const { return FnvHash(ranks_.Next(random)) % items_; }

  static constexpr uint64_t kRanks = 10'000'000'000;

 private:
  const uint64_t items_;
  const Zipfian ranks_;
};

// Draws the newest item most often, and older ones more and more rarely.
class Latest {
 public:
  // `items` at least 2: how many there are at first.
  explicit Latest(uint64_t items) : ages_(items) {}
  // In [0, items); `items` never shrinks.
  uint64_t Next(Random& random, uint64_t items) {
    if (items > ages_.items()) ages_.Grow(items);
    return items - 1 - ages_.Next(random);
  }

 private:
  Zipfian ages_;
};

}  // namespace hyperloop::ycsb
