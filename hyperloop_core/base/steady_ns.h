// SteadyNs: the steady clock as a number.
#pragma once

#include <chrono>
#include <cstdint>

namespace hyperloop {

// The nanoseconds since an arbitrary moment.
inline uint64_t SteadyNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace hyperloop
