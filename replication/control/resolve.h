// Looks up the addresses of hosts, within a time. All functions are thread safe.
#pragma once

#include <sys/socket.h>

#include <vector>

#include "control/endpoint.h"

namespace hyperloop::control {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr& raw() const { return reinterpret_cast<const sockaddr&>(storage); }
};

// The addresses of an endpoint in the order of getaddrinfo(3), at least one. `flags`: those of
// addrinfo::ai_flags. kInvalidArgument: the host is unknown. kUnavailable: it cannot be resolved
// now. It waits as long as the system's resolver does.
Result<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint, int flags);

inline constexpr int kMostLookups = 32;
// The same, at `deadline` at the latest. If the resolver does not answer in half of the time that
// is left, or cannot say, the result is what it said last to this process. kTimedOut: it said
// nothing yet. kUnavailable: as for Resolve, or kMostLookups look-ups wait for the resolver.
Result<std::vector<SocketAddress>> ResolveUntil(const Endpoint& endpoint, Deadline deadline);

}  // namespace hyperloop::control
