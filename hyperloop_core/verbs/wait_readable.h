// Waiting for a descriptor with a deadline.
#pragma once

#include <chrono>

#include "hyperloop/core/status.h"

namespace hyperloop::verbs {

// True: `fd` is readable. False: `deadline` came first. Signals end neither; a deadline in the past
// only looks. Thread safe.
Result<bool> WaitReadable(int fd, std::chrono::steady_clock::time_point deadline);

}  // namespace hyperloop::verbs
