// What the interpose_*.cc files share. Each of them redefines functions of the C library. For a
// simulated thread they wait by the scheduler, and for another one they call the library's own
// function.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include "simulation/scheduler.h"

namespace hyperloop::simulation {

// The C library's own function of this name.
template <class Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Whether a thread of another process waits for a lock that this thread, of `process`, holds.
bool HoldsUpOthers(pthread_t thread, uint64_t process);

inline constexpr uint64_t kSecond = 1'000'000'000;

inline uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace hyperloop::simulation

// The C library's own function `name`, looked up once.
#define HL_REAL(name)                                                           \
  ([]() -> decltype(&name) {                                                    \
    static const auto own = hyperloop::simulation::Real<decltype(name)>(#name); \
    return own;                                                                 \
  }())
