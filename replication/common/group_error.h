// Which errors say that the group, not the request, is at fault: it may come back.
#pragma once

#include "hyperloop/core/status.h"

namespace hyperloop {

inline bool IsGroupError(Code code) {
  return code == Code::kUnavailable || code == Code::kTimedOut || code == Code::kAborted ||
         code == Code::kProtection;
}

}  // namespace hyperloop
