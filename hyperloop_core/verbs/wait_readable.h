// Waiting for a descriptor with a deadline.
#pragma once

#include <chrono>

#include "hyperloop/core/status.h"

namespace hyperloop::verbs {

// Waits until `fd` is readable (true) or until `deadline` (false). A signal does not end the wait.
// With a deadline in the past it only looks. Thread safe.
Result<bool> WaitReadable(int fd, std::chrono::steady_clock::time_point deadline);

}  // namespace hyperloop::verbs
