#include "verbs/wait_readable.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace hyperloop::verbs {

Result<bool> WaitReadable(int fd, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd, POLLIN, 0};
    const int polled =
        poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30)));
    if (polled > 0) return true;
    if (polled == 0) return false;
    if (errno != EINTR) return FromErrno(errno, "poll");
  }
}

}  // namespace hyperloop::verbs
