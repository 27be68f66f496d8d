#include "measuring/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace hyperloop::bench {
namespace {

TEST(LatencyHistogramTest, EmptyIsZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.Percentile(50), 0u);
}

TEST(LatencyHistogramTest, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (uint64_t value = 1; value <= 200; ++value) histogram.Record(value);
  EXPECT_EQ(histogram.Percentile(50), 100u);
  EXPECT_EQ(histogram.Percentile(99), 198u);
  EXPECT_EQ(histogram.Percentile(100), 200u);
  EXPECT_EQ(histogram.Percentile(0), 1u);
  EXPECT_EQ(histogram.min(), 1u);
  EXPECT_EQ(histogram.max(), 200u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 100.5);
}

TEST(LatencyHistogramTest, ARankIsRoundedUp) {
  LatencyHistogram histogram;
  for (int i = 0; i < 999; ++i) histogram.Record(10);
  histogram.Record(70);
  EXPECT_EQ(histogram.Percentile(99.9), 10u);   // exactly 999 of 1000
  EXPECT_EQ(histogram.Percentile(99.91), 70u);  // more than 999
}

TEST(LatencyHistogramTest, EveryPowerAndItsNeighboursAreWithinABucket) {
  for (unsigned bit = 0; bit < 64; ++bit) {
    for (const int64_t step : {-1, 0, 1}) {
      const uint64_t value = (uint64_t{1} << bit) + static_cast<uint64_t>(step);
      LatencyHistogram histogram;
      histogram.Record(value);
      EXPECT_EQ(histogram.Percentile(50), value);  // one value: clamped to min and max
      histogram.Record(0);
      histogram.Record(UINT64_MAX);
      const uint64_t read = histogram.Percentile(50);
      EXPECT_GE(read, value);
      EXPECT_LE(read - value, value / 128) << value;
    }
  }
}

TEST(LatencyHistogramTest, AgreesWithSortingOnRandomValues) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency(8, 1.5);
  LatencyHistogram histogram;
  std::vector<uint64_t> values;
  for (int i = 0; i < 100000; ++i) {
    values.push_back(static_cast<uint64_t>(latency(random)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 50.0, 95.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 100000 - 1e-9));
    const uint64_t exact = values[rank - 1];
    EXPECT_GE(histogram.Percentile(percent), exact);
    EXPECT_LE(histogram.Percentile(percent), exact + exact / 128 + 1);
  }
}

TEST(LatencyHistogramTest, BucketsHoldEveryValueOnceWithinTheirBounds) {
  LatencyHistogram histogram;
  std::vector<uint64_t> values;
  for (uint64_t value = 0; value < 3'000'000; value = value * 9 / 8 + 1) {
    values.push_back(value);
    histogram.Record(value);
  }
  uint64_t next = 0, count = 0;
  for (const LatencyHistogram::Bucket& bucket : histogram.Buckets()) {
    EXPECT_GE(bucket.lower, next) << "buckets overlap or are not ascending";
    EXPECT_GE(bucket.upper, bucket.lower);
    EXPECT_EQ(bucket.count, std::count_if(values.begin(), values.end(), [&](uint64_t value) {
                return value >= bucket.lower && value <= bucket.upper;
              }));
    next = bucket.upper + 1;
    count += bucket.count;
  }
  EXPECT_EQ(count, values.size());
  EXPECT_TRUE(LatencyHistogram().Buckets().empty());
}

TEST(LatencyHistogramTest, MergeIsAsIfRecordedInOne) {
  LatencyHistogram both, first, second;
  for (uint64_t value = 1; value < 5000; value += 7) {
    (value % 2 == 0 ? first : second).Record(value);
    both.Record(value);
  }
  first.Merge(second);
  EXPECT_EQ(first.count(), both.count());
  EXPECT_EQ(first.min(), both.min());
  EXPECT_EQ(first.max(), both.max());
  EXPECT_DOUBLE_EQ(first.mean(), both.mean());
  EXPECT_EQ(first.Percentile(95), both.Percentile(95));
}

}  // namespace
}  // namespace hyperloop::bench
