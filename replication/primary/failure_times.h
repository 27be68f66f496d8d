// FailureTimes: when a group notices that a replica has failed, and when it goes on without it.
#pragma once

#include <algorithm>
#include <chrono>

#include "hyperloop/replication/options.h"

namespace hyperloop {

struct FailureTimes {
  // A way to a member that carries nothing for so long has failed.
  std::chrono::milliseconds silence{0};
  // With on_replica_failure=continue a member that does not answer, or fails at its work, is left
  // out once so much time has passed since it was heard of last.
  std::chrono::milliseconds absence{0};
  // No answer to the question who is there is waited for longer than this; a member that runs
  // answers at once.
  std::chrono::milliseconds answer{0};
};

// With `block` nobody is left out, so a cut is waited for as long as an operation is. With
// `continue` writes go on at the latest after `absence`, once more `answer` for each member that is
// missing, and what bringing the group back takes. With the default ack_timeout that is less than
// 3 s. Whoever was only slow is taken in again.
inline FailureTimes FailureTimesOf(const StoreOptions& options) {
  const auto all = options.ack_timeout;
  constexpr std::chrono::milliseconds kLeast{1}, kLeastAnswer{200}, kMostAnswer{1000};
  const auto share = [&](int parts, int of) { return std::max(kLeast, all * parts / of); };
  if (options.on_replica_failure == OnReplicaFailure::kBlock)
    return {share(9, 20), share(1, 5), kMostAnswer};
  return {share(3, 20), share(1, 5), std::clamp(share(1, 20), kLeastAnswer, kMostAnswer)};
}

}  // namespace hyperloop
