// HL_INVARIANT: what must hold if this code is right, in every build. Where it does not, the
// process ends, because whatever it did next would rest on what is false: a replica could be told
// that bytes are acknowledged which are not. What a peer, a disk or a caller can cause is no
// invariant; that is an error with a Status.
//
// Costs a comparison that is predicted.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace hyperloop {

[[noreturn, gnu::cold, gnu::noinline]] inline void InvariantBroken(const char* condition,
                                                                   const char* function, int line) {
  std::fprintf(stderr,
               "hyperloop: %s, line %d: %s does not hold; this is a bug, please report it\n",
               function, line, condition);
  std::abort();
}

}  // namespace hyperloop

#define HL_INVARIANT(condition)                                     \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::hyperloop::InvariantBroken(#condition, __func__, __LINE__); \
  } while (false)
