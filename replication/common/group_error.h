// Tells the errors that are the fault of the group, which may come back, from those of the request.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop {

// The way out of such an error, for the end of a message.
inline constexpr char kWhenAllRun[] =
    "when all replicas and RNIC daemons run (hyperloopctl status says what it cannot reach)";

inline bool IsGroupError(Code code) {
  return code == Code::kUnavailable || code == Code::kTimedOut || code == Code::kAborted ||
         code == Code::kProtection;
}

// One error with the reasons of all of these, of which there is one at least. The first that does
// not pass by itself decides what kind it is.
inline Status AllReasons(const std::vector<Status>& failed) {
  const auto lasting =
      std::ranges::find_if(failed, [](const Status& each) { return !IsGroupError(each.code()); });
  std::string all;
  for (const Status& each : failed) all += (all.empty() ? "" : "; ") + each.message();
  return {lasting == failed.end() ? failed.front().code() : lasting->code(), std::move(all)};
}

}  // namespace hyperloop
