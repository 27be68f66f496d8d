// Tests how long calls to a replica may take that says nothing, and what becomes of its errors.
#include "files/bulk_connection.h"

#include <gmock/gmock.h>

#include "common/group_error.h"
#include "support/control_host.h"
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

// So that whoever answers so is told from whoever is out of reach.
TEST(BulkConnectionTest, WhatAReplicaAnswersIsNoErrorOfTheGroup) {
  const control::Trust trust = Must(control::Trust::Load("", nullptr));
  Code code = Code::kOk;
  test::ControlHost host(trust, [&](const control::BodyUnion&) {
    return control::MakeError({code, "its disk"});
  });
  const CallLimit limit(kLong);
  const auto target = Must(BulkConnectionTo(host.endpoint(), 0, trust, {}, limit)());
  for (code = Code::kInvalidArgument; code <= Code::kInternal;
       code = static_cast<Code>(static_cast<int>(code) + 1)) {
    const Status put = target->Put({"000007.sst", 1, 0}, 0, {}).status();
    EXPECT_FALSE(put.ok() || IsGroupError(put.code())) << put.ToString();
    EXPECT_THAT(put.message(), testing::HasSubstr("its disk"));
  }
}

}  // namespace
}  // namespace hyperloop
