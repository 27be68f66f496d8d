// HttpGet: asks an agent for one of its pages. What comes may be anybody's: its size and the time
// that it takes are bounded, and nothing of it is trusted.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"

namespace hyperloop::ctl {

struct HttpPage {
  int status = 0;
  std::string body;
};
// kInvalidArgument: `address` is no ADDRESS:PORT. kUnavailable and kTimedOut: nobody answers there,
// or not in that time. kCorruption: what answers does not speak HTTP, cuts the page, or has one of
// more than `most` bytes.
Result<HttpPage> HttpGet(const std::string& address, const std::string& path,
                         std::chrono::milliseconds patience, size_t most = 1 << 20);

// Of an answer as a whole, its end included. As above.
Result<HttpPage> ParseHttpAnswer(std::string_view answer);

}  // namespace hyperloop::ctl
