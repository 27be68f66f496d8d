// Compares the generators with the laws that they must follow. Seeds are fixed, and each bound is
// at least four standard deviations wide.
#include "ycsb/generators.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace hyperloop::ycsb {
namespace {

constexpr uint64_t kDraws = 300'000;

// How often each of `items` numbers came up, as shares.
template <class Draw>
std::vector<double> Shares(uint64_t items, Draw&& draw) {
  std::vector<double> shares(items, 0.0);
  for (uint64_t i = 0; i < kDraws; ++i) shares.at(draw()) += 1.0 / kDraws;
  return shares;
}
double FourDeviations(double share) { return 4 * std::sqrt(share * (1 - share) / kDraws); }

// The share of ranks below `first` by the published formula, rank = n (eta u - eta + 1)^alpha,
// solved for u. Holds from rank 2 on.
double PublishedShare(uint64_t first, uint64_t items, double theta) {
  const double power = 1 - theta, n = static_cast<double>(items);
  const double eta = (1 - std::pow(2 / n, power)) / (1 - Zeta(2, theta) / Zeta(items, theta));
  return (std::pow(static_cast<double>(first) / n, power) - 1 + eta) / eta;
}

TEST(ZetaTest, IsTheSumWithFewTermsAndWithMany) {
  // Summed term by term with exact rounding (Python's math.fsum).
  EXPECT_NEAR(Zeta(1000, 0.99), 7.728953217284738, 1e-12);
  EXPECT_NEAR(Zeta(100'000, 0.99), 12.778338062551171, 1e-12);
  EXPECT_NEAR(Zeta(3'000'000, 0.99), 16.6601793008336, 1e-11);
  // YCSB keeps this one as a constant.
  EXPECT_NEAR(Zeta(10'000'000'000, 0.99), 26.46902820178302, 1e-6);
}

TEST(ZipfianTest, FollowsZipfsLaw) {
  for (const uint64_t items : {uint64_t{1000}, uint64_t{100'000}}) {
    Random random(1);
    const Zipfian zipfian(items);
    const std::vector<double> shares = Shares(items, [&] { return zipfian.Next(random); });
    const double all = Zeta(items, kZipfianConstant);
    // The first two ranks are exact.
    EXPECT_NEAR(shares[0], 1 / all, FourDeviations(1 / all));
    const double second = std::pow(2, -kZipfianConstant) / all;
    EXPECT_NEAR(shares[1], second, FourDeviations(second));
    // For later ranks the algorithm uses an integral instead of the sum: up to 0.016 more than the
    // law.
    for (const uint64_t first : {uint64_t{10}, uint64_t{100}, items / 2}) {
      double share = 0;
      for (uint64_t rank = 0; rank < first; ++rank) share += shares[rank];
      const double published = PublishedShare(first, items, kZipfianConstant);
      EXPECT_NEAR(share, published, FourDeviations(published)) << first << " of " << items;
      EXPECT_NEAR(share, Zeta(first, kZipfianConstant) / all, 0.02) << first << " of " << items;
    }
  }
}

// One of Gray et al.'s own parameters: a theta of 0.5, which gives a heavy tail.
TEST(ZipfianTest, TakesAnotherTheta) {
  Random random(2);
  const Zipfian zipfian(1000, 0.5);
  const std::vector<double> shares = Shares(1000, [&] { return zipfian.Next(random); });
  const double all = Zeta(1000, 0.5);
  EXPECT_NEAR(shares[0], 1 / all, FourDeviations(1 / all));
  double half = 0;
  for (uint64_t rank = 0; rank < 500; ++rank) half += shares[rank];
  const double published = PublishedShare(500, 1000, 0.5);
  EXPECT_NEAR(half, published, FourDeviations(published));
}

TEST(ZipfianTest, GrownIsAsMadeWithThatMany) {
  Zipfian grown(1000);
  for (uint64_t items = 1001; items <= 1500; ++items) grown.Grow(items);
  const Zipfian made(1500);
  Random a(3), b(3);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(grown.Next(a), made.Next(b));
}

TEST(FnvHashTest, IsFnv1aOfTheOctets) {
  EXPECT_EQ(FnvHash(0), 0xa8c7f832281a39c5);
  EXPECT_EQ(FnvHash(12345), 0xe71eb185e2edcc4c);
  EXPECT_EQ(FnvHash(uint64_t{1} << 40), 0xa01e7d3223323b1a);
}

TEST(ScrambledZipfianTest, KeepsThePopularityAndScattersTheItems) {
  constexpr uint64_t kItems = 10'000;
  Random random(4);
  const ScrambledZipfian scrambled(kItems);
  const std::vector<double> shares = Shares(kItems, [&] { return scrambled.Next(random); });
  // A rank has its popularity of the space of ten billion, whatever the number of items.
  const double all = Zeta(ScrambledZipfian::kRanks, kZipfianConstant);
  for (const uint64_t rank : {0u, 1u}) {
    const double share = std::pow(static_cast<double>(rank + 1), -kZipfianConstant) / all;
    // Other ranks hash to the same item: the evenly spread tail adds up to 1/items.
    EXPECT_NEAR(shares[FnvHash(rank) % kItems], share, FourDeviations(share) + 2.0 / kItems);
  }
  EXPECT_EQ(std::max_element(shares.begin(), shares.end()) - shares.begin(),
            static_cast<std::ptrdiff_t>(FnvHash(0) % kItems));
  // Scattered: each tenth of the items has its part of the requests.
  for (uint64_t tenth = 0; tenth < 10; ++tenth) {
    double share = 0;
    for (uint64_t i = 0; i < kItems / 10; ++i) share += shares[tenth * kItems / 10 + i];
    EXPECT_GT(share, 0.05) << tenth;
    EXPECT_LT(share, 0.2) << tenth;
  }
}

TEST(LatestTest, PrefersTheNewestOfAGrowingNumber) {
  Random random(5);
  Latest latest(1000);
  for (const uint64_t items : {uint64_t{1000}, uint64_t{1500}}) {
    const std::vector<double> shares = Shares(items, [&] { return latest.Next(random, items); });
    const double all = Zeta(items, kZipfianConstant);
    EXPECT_NEAR(shares[items - 1], 1 / all, FourDeviations(1 / all));
    double newest = 0;
    for (uint64_t age = 0; age < 100; ++age) newest += shares[items - 1 - age];
    const double published = PublishedShare(100, items, kZipfianConstant);
    EXPECT_NEAR(newest, published, FourDeviations(published));
  }
}

TEST(UniformBelowTest, IsUniform) {
  Random random(6);
  for (const double share : Shares(100, [&] { return UniformBelow(random, 100); })) {
    EXPECT_NEAR(share, 0.01, FourDeviations(0.01) * 1.25);
  }
}

}  // namespace
}  // namespace hyperloop::ycsb
