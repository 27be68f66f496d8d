#include "ctl/acknowledgement_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/metrics/page.h"

namespace hyperloop::ctl {
namespace {

// A primary's page after these times in nanoseconds.
std::string PageAfter(metrics::Histogram& times, const std::vector<uint64_t>& more) {
  for (const uint64_t ns : more) times.Add(ns);
  metrics::Page page;
  page.Add("hyperloop_primary_acknowledgement_seconds", times.Read(), {{"group", "g"}});
  page.Add("hyperloop_primary_epoch", 3, {{"group", "g"}});
  return page.Text();
}

TEST(AcknowledgementTimesTest, QuantilesAreOfWhatHappenedBetweenTwoPages) {
  metrics::Histogram histogram;
  AcknowledgementTimes times;
  EXPECT_FALSE(times.Quantile(0.5).has_value());
  times.Read(PageAfter(histogram, std::vector<uint64_t>(1000, 900'000'000)), "g");
  EXPECT_FALSE(times.Quantile(0.5).has_value()) << "there is one page only";
  std::vector<uint64_t> more(98, 7'000);
  more.push_back(60'000);
  more.push_back(60'000);
  const std::string second = PageAfter(histogram, more);
  for (int i = 0; i < 2; ++i) {  // the same page again says nothing new
    times.Read(second, "g");
    EXPECT_DOUBLE_EQ(times.Quantile(0.5).value(), 8e-6);
    EXPECT_DOUBLE_EQ(times.Quantile(0.98).value(), 8e-6);
    EXPECT_DOUBLE_EQ(times.Quantile(0.99).value(), 64e-6);
  }
  times.Read(PageAfter(histogram, {3'600'000'000'000}), "g");
  EXPECT_TRUE(std::isinf(times.Quantile(0.5).value()));
}

TEST(AcknowledgementTimesTest, OtherGroupsAndOtherTextsCountAsNothing) {
  metrics::Histogram histogram;
  AcknowledgementTimes times;
  times.Read(PageAfter(histogram, {1000}), "other");
  times.Read(PageAfter(histogram, {1000}), "other");
  EXPECT_FALSE(times.Quantile(0.5).has_value());
  const std::string bucket = "hyperloop_primary_acknowledgement_seconds_bucket{group=\"g\",le=\"";
  for (const std::string& text :
       {bucket, bucket + "1\"}", bucket + "1\"} x\n", bucket + "-1\"} 5\n", bucket + "nan\"} nan\n",
        bucket + "1\"} 7\n" + bucket + "2\"} 3\n", std::string(1000, '\0')}) {
    times.Read(text, "g");
    times.Quantile(0.5);
  }
}

// A primary that was started anew counts from 0 again.
TEST(AcknowledgementTimesTest, CountersThatBeginAnewGiveNoQuantile) {
  metrics::Histogram long_run, fresh;
  AcknowledgementTimes times;
  times.Read(PageAfter(long_run, {1000, 1000, 1000}), "g");
  times.Read(PageAfter(fresh, {1000}), "g");
  EXPECT_FALSE(times.Quantile(0.5).has_value());
}

}  // namespace
}  // namespace hyperloop::ctl
