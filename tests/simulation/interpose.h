// What the interpose_*.cc files share. Each of them defines functions of the C library anew: for a
// simulated thread as the scheduler has it, and for others as the library's own.
#pragma once

#include <dlfcn.h>

#include "simulation/scheduler.h"

namespace hyperloop::simulation {

// The C library's own function of this name.
template <class Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

inline constexpr uint64_t kSecond = 1'000'000'000;

inline uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace hyperloop::simulation

// The own function of the C library, found once.
#define HL_REAL(name)                                                           \
  ([]() -> decltype(&name) {                                                    \
    static const auto own = hyperloop::simulation::Real<decltype(name)>(#name); \
    return own;                                                                 \
  }())
