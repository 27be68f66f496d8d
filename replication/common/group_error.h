// Tells the errors that are the fault of the group, which may come back, from those of the request.
#pragma once

#include "hyperloop/core/status.h"

namespace hyperloop {

inline bool IsGroupError(Code code) {
  return code == Code::kUnavailable || code == Code::kTimedOut || code == Code::kAborted ||
         code == Code::kProtection;
}

}  // namespace hyperloop
