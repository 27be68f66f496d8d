// SignalEvent: makes an eventfd readable.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace hyperloop {

// Any thread may call it, and signal handlers. If it fails, the counter is at its end, and so the
// eventfd is readable anyway.
inline void SignalEvent(int event_fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_fd, &one, sizeof one);
}

}  // namespace hyperloop
