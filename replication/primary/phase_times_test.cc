#include "primary/phase_times.h"

#include <gtest/gtest.h>

namespace hyperloop {
namespace {

using std::chrono::microseconds;

TEST(PhaseTimesTest, NamesThePhasesInTheirOrderAndTheirSum) {
  const PhaseTimes::Clock::time_point start{};
  PhaseTimes times;
  times.Begin("connecting", start);
  times.Begin("checking", start + microseconds(1500));
  times.Begin("sealing", start + microseconds(3000));
  times.Begin("checking", start + microseconds(3200));
  EXPECT_EQ(times.End(start + microseconds(5200)),
            "5.2 ms: connecting 1.5, checking 3.5, sealing 0.2");
}

TEST(PhaseTimesTest, NothingBegunIsNoTime) {
  PhaseTimes times;
  EXPECT_EQ(times.End(), "0.0 ms: ");
}

}  // namespace
}  // namespace hyperloop
