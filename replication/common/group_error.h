// Tells the errors that are the fault of the group, which may come back, from those of the request.
#pragma once

#include "hyperloop/core/status.h"

namespace hyperloop {

// The way out of such an error, for the end of a message.
inline constexpr char kWhenAllRun[] =
    "when all replicas and RNIC daemons run (hyperloopctl status says what it cannot reach)";

inline bool IsGroupError(Code code) {
  return code == Code::kUnavailable || code == Code::kTimedOut || code == Code::kAborted ||
         code == Code::kProtection;
}

}  // namespace hyperloop
