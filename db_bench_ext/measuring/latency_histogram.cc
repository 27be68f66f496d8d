#include "measuring/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hyperloop::bench {
namespace {

constexpr unsigned kPrecisionBits = 7;  // buckets per power of two: 128
constexpr uint64_t kPerPower = 1u << kPrecisionBits;
constexpr size_t kBuckets = (64 - kPrecisionBits) * kPerPower + kPerPower;

// A value of more than 8 bits keeps its upper 8: `shift` lower bits are dropped.
unsigned ShiftOf(uint64_t value) {
  const auto width = static_cast<unsigned>(std::bit_width(value));
  return width <= kPrecisionBits + 1 ? 0 : width - kPrecisionBits - 1;
}
size_t BucketOf(uint64_t value) {
  const unsigned shift = ShiftOf(value);
  return shift * kPerPower + (value >> shift);
}
// The greatest value of a bucket.
uint64_t UpperEnd(size_t bucket) {
  if (bucket < 2 * kPerPower) return bucket;
  const unsigned shift = static_cast<unsigned>(bucket / kPerPower) - 1;
  const uint64_t mantissa = bucket - shift * kPerPower;
  return ((mantissa + 1) << shift) - 1;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets, 0) {}

void LatencyHistogram::Record(uint64_t nanoseconds) {
  ++buckets_[BucketOf(nanoseconds)];
  ++count_;
  min_ = std::min(min_, nanoseconds);
  max_ = std::max(max_, nanoseconds);
  sum_ += static_cast<double>(nanoseconds);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

double LatencyHistogram::mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

uint64_t LatencyHistogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double share = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(count_);
  const uint64_t rank =
      std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(share - 1e-9)), 1, count_);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(UpperEnd(i), min_, max_);
  }
  return max_;
}

std::vector<LatencyHistogram::Bucket> LatencyHistogram::Buckets() const {
  std::vector<Bucket> filled;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (buckets_[i] == 0) continue;
    filled.push_back({i == 0 ? 0 : UpperEnd(i - 1) + 1, UpperEnd(i), buckets_[i]});
  }
  return filled;
}

}  // namespace hyperloop::bench
