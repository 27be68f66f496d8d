#include "primary/failure_times.h"

#include <gtest/gtest.h>

namespace hyperloop {
namespace {

using std::chrono::milliseconds;

StoreOptions With(OnReplicaFailure policy, milliseconds ack_timeout) {
  StoreOptions options;
  options.on_replica_failure = policy;
  options.ack_timeout = ack_timeout;
  return options;
}

// docs/guarantees.md promises 3 s by default. What is left is for bringing the group back.
TEST(FailureTimes, WritesGoOnWithinThreeSecondsByDefault) {
  StoreOptions options;
  options.replicas = {"a:1", "b:1", "c:1"};
  const FailureTimes times = FailureTimesOf(options);
  EXPECT_LE(std::max(times.absence, times.silence + times.answer), milliseconds(2000));
  EXPECT_LE(times.absence + times.answer, milliseconds(2500));
}

// Otherwise a member whose machine is gone would be left out before its RNIC is asked again.
TEST(FailureTimes, AWayFailsBeforeItsMemberIsLeftOut) {
  for (const milliseconds ack : {milliseconds(1), milliseconds(200), milliseconds(4000),
                                 milliseconds(10000), milliseconds(3600000)}) {
    const FailureTimes times = FailureTimesOf(With(OnReplicaFailure::kContinue, ack));
    EXPECT_LE(times.silence + times.answer, times.absence) << "it has time to answer, too";
    EXPECT_GE(times.silence, milliseconds(1));
    EXPECT_GE(times.answer, milliseconds(200));
  }
}

// The RNIC asks a silent peer again after half a second, and TCP mends a lost packet in 200 ms.
TEST(FailureTimes, AWayDoesNotFailBeforeItWasTriedAgainOrTheOperationIsOver) {
  for (const milliseconds ack : {milliseconds(10), milliseconds(1000), milliseconds(1300),
                                 milliseconds(2000), milliseconds(10000)}) {
    const FailureTimes times = FailureTimesOf(With(OnReplicaFailure::kContinue, ack));
    EXPECT_GE(times.silence, std::min(milliseconds(600), ack * 9 / 20)) << ack.count();
    EXPECT_LT(times.silence, ack / 2) << "it would fail the operation first";
  }
}

// As the help of on_replica_failure says.
TEST(FailureTimes, AMemberIsLeftOutAfterAFifthOfAckTimeoutOrTheLeastTime) {
  const auto absence = [](int ack) {
    return FailureTimesOf(With(OnReplicaFailure::kContinue, milliseconds(ack))).absence;
  };
  EXPECT_EQ(absence(10000), milliseconds(2000));
  EXPECT_EQ(absence(4000), milliseconds(800));
  EXPECT_EQ(absence(2000), milliseconds(800));
  EXPECT_EQ(absence(1000), milliseconds(650));
}

TEST(FailureTimes, WhereNobodyIsLeftOutACutIsWaitedForAsLongAsAnOperation) {
  EXPECT_EQ(FailureTimesOf(With(OnReplicaFailure::kBlock, milliseconds(10000))).silence,
            milliseconds(4500));
}

}  // namespace
}  // namespace hyperloop
