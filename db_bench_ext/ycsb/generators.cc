#include "ycsb/generators.h"

#include <algorithm>
#include <cmath>

namespace hyperloop::ycsb {

double Uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1.0p-53; }

uint64_t UniformBelow(Random& random, uint64_t n) {
  return std::uniform_int_distribution<uint64_t>(0, n - 1)(random);
}

double Zeta(uint64_t n, double theta) {
  constexpr uint64_t kTerms = 1 << 10;
  const uint64_t summed = std::min(n, kTerms);
  double sum = 0;
  for (uint64_t i = summed; i > 0; --i) sum += std::pow(static_cast<double>(i), -theta);
  if (summed == n) return sum;
  // The rest is the integral, half the ends' difference, and a twelfth of their slopes'; what comes
  // after that is below 1e-14 here.
  const auto a = static_cast<double>(summed), b = static_cast<double>(n);
  const double integral = (std::pow(b, 1 - theta) - std::pow(a, 1 - theta)) / (1 - theta);
  const double ends = (std::pow(b, -theta) - std::pow(a, -theta)) / 2;
  const double slopes = -theta * (std::pow(b, -theta - 1) - std::pow(a, -theta - 1)) / 12;
  return sum + integral + ends + slopes;
}

uint64_t FnvHash(uint64_t value) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int octet = 0; octet < 8; ++octet, value >>= 8) {
    hash ^= value & 0xff;
    hash *= 1099511628211;
  }
  return hash;
}

Zipfian::Zipfian(uint64_t items, double theta)
    : theta_(theta),
      alpha_(1 / (1 - theta)),
      two_items_(Zeta(2, theta)),
      items_(items),
      all_items_(Zeta(items, theta)) {
  Derive();
}

void Zipfian::Derive() {
  const double tail = std::pow(2 / static_cast<double>(items_), 1 - theta_);
  eta_ = (1 - tail) / (1 - two_items_ / all_items_);
}

void Zipfian::Grow(uint64_t items) {
  while (items_ < items) all_items_ += std::pow(static_cast<double>(++items_), -theta_);
  Derive();
}

uint64_t Zipfian::Next(Random& random) const {
  const double u = Uniform(random), scaled = u * all_items_;
  if (scaled < 1) return 0;
  if (scaled < two_items_) return 1;
  const double rank = static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1, alpha_);
  return std::min(static_cast<uint64_t>(rank), items_ - 1);
}

}  // namespace hyperloop::ycsb
