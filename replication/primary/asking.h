// Asking several replicas at the same time. What waits for each of them lasts as long as the
// slowest one, and not as long as all together; and a replica that does not answer is not waited
// for much longer than it takes enough others to answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "primary/replica_handle.h"

namespace hyperloop {

// Calls call(0) to call(count − 1), each on a thread of its own, the last one on this thread, and
// returns once all have returned. A call for which no thread can be made is made before the last
// one. What a call throws, this throws.
void CallAtOnce(size_t count, const std::function<void(size_t)>& call);

// The same. Returns what the calls returned, in their order.
template <class Call>
auto AtOnce(size_t count, const Call& call) {
  using Value = decltype(call(size_t{}));
  std::vector<std::optional<Value>> values(count);
  CallAtOnce(count, [&](size_t i) { values[i].emplace(call(i)); });
  std::vector<Value> out;
  for (std::optional<Value>& each : values) out.push_back(*std::move(each));
  return out;
}

// The same for calls that return nothing else. The first error in their order.
Status AllAtOnce(size_t count, const std::function<Status(size_t)>& call);

// How long replicas may take to answer.
struct AnswerTimes {
  std::chrono::nanoseconds most{};  // as long as fewer than `enough` have answered
  // From then on.
  std::chrono::nanoseconds others{};
  // The same for those that were silent before, and those that answers say are left out already.
  std::chrono::nanoseconds silent{};
  size_t enough = SIZE_MAX;  // SIZE_MAX: all
};
// Those of whoever is to take a group.
AnswerTimes LookTimes(const StoreOptions& options, bool bears_missing);

// Sends Hello to all of them. Notes which are silent (ReplicaHandle::silent). `owner`: as
// ReplicaHandle::Hello's.
std::vector<Result<control::HelloReplyT>> HelloAll(std::span<ReplicaHandle* const> replicas,
                                                   const AnswerTimes& times,
                                                   const Uuid* owner = nullptr);

}  // namespace hyperloop
