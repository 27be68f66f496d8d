// Ways: whether the RNICs of a group that is to have one more replica reach each other. Taking a
// replica in interrupts the group, so that is tried first.
#pragma once

#include <span>
#include <string>

#include "control/messages.h"
#include "control/trust.h"
#include "hyperloop/core/rnic.h"

namespace hyperloop {

// A replica as it answered a moment ago.
struct Answered {
  std::string address;
  control::HelloReplyT hello;
};

// Asks `joiner` to connect to `host`, the primary's, which `device` belongs to, and `members` and
// `joiner` to connect to each other. An empty `host` offers no services, and is not tried.
// `members`: those whose RNICs exchange operations with the joiner's. A replica of a release that
// tries no ways is not asked. kUnavailable: one cannot be reached; the message names both. Waits
// for the answers, which may take seconds for each.
Status TryWays(rnic::Device& device, const std::string& host, const control::Trust& trust,
               const Answered& joiner, std::span<const Answered> members);

}  // namespace hyperloop
