// Tests how long calls to a replica may take that says nothing.
#include "primary/bulk_connection.h"

#include <gtest/gtest.h>

#include "support/must.h"
#include "support/silent_peer.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using control::Clock;

constexpr std::chrono::hours kLong{1};

TEST(CallLimitTest, IsThatOfEachCallUntilTheLastMomentIsNear) {
  CallLimit limit(kLong);
  EXPECT_EQ(limit.Left(), kLong);
  limit.EndBy(Clock::now() + 2 * kLong);
  EXPECT_EQ(limit.Left(), kLong);
  limit.EndBy(Clock::now() + kLong / 2);
  EXPECT_LE(limit.Left(), kLong / 2);
  limit.EndBy(Clock::now() - kLong);
  EXPECT_EQ(limit.Left(), std::chrono::nanoseconds(0));
}

// A store that is closed waits for a call that has begun, and for the next one of the same step.
TEST(BulkConnectionTest, ACallEndsWhenItsTimeIsOverAlthoughTheConnectionWasMadeBefore) {
  test::SilentPeer peer;
  CallLimit limit(kLong);
  const BulkConnect connect = BulkConnectionTo(Must(control::ParseEndpoint(peer.endpoint())), 0,
                                               Must(control::Trust::Load("", nullptr)), {}, limit);
  const auto target = connect();
  ASSERT_OK(target);
  limit.EndBy(Clock::now());
  EXPECT_THAT((*target)->List(), StatusIs(Code::kTimedOut));
}

}  // namespace
}  // namespace hyperloop
