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
// `continue` writes go on at the latest after `absence`, once more `answer`, and what bringing the
// group back takes. With the default ack_timeout that is less than 3 s. A member that answers is
// left out only if it failed in an attempt to bring the group back, however late that began.
// Whoever was only slow is taken in again.
inline FailureTimes FailureTimesOf(const StoreOptions& options) {
  const auto all = options.ack_timeout;
  constexpr std::chrono::milliseconds kLeast{1}, kLeastAnswer{200}, kMostAnswer{1000};
  // The RNIC asks a silent peer again after half a second, and TCP mends a lost packet in 200 ms. A
  // way that fails before that was not silent, but tried once.
  constexpr std::chrono::milliseconds kLeastSilence{600};
  const auto share = [&](int parts, int of) { return std::max(kLeast, all * parts / of); };
  const auto operation = share(9, 20);
  if (!GoesOnWithoutSome(options)) return {operation, share(1, 5), kMostAnswer};
  const auto silence = std::max(share(3, 20), std::min(kLeastSilence, operation));
  const auto answer = std::clamp(share(1, 20), kLeastAnswer, kMostAnswer);
  return {silence, std::max(share(1, 5), silence + answer), answer};
}

}  // namespace hyperloop
