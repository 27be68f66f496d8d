// LatencyHistogram: counts of nanosecond values in log-linear buckets, for percentiles of many
// samples.
//
// Values below 256 are kept exactly; above, a bucket is at most 1/128 of its value wide, so that a
// percentile is never more than 0.8 % too great and never too small. Record costs one
// count-leading-zeros and one increment. Not thread safe.
#pragma once

#include <cstdint>
#include <vector>

namespace hyperloop::bench {

class LatencyHistogram {
 public:
  LatencyHistogram();
  void Record(uint64_t nanoseconds);
  // Adds the values of `other`.
  void Merge(const LatencyHistogram& other);

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  double mean() const;
  // The smallest recorded value (to the bucket's width) such that at least `percent` of all values
  // are no greater. 0 when empty.
  uint64_t Percentile(double percent) const;
  struct Bucket {
    uint64_t lower = 0, upper = 0;  // both inclusive
    uint64_t count = 0;
  };
  // The buckets that are not empty, ascending.
  std::vector<Bucket> Buckets() const;

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace hyperloop::bench
