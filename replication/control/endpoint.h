// "host:port" texts, and sockets made from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::control {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string ToString() const;  // "[::1]:70" for IPv6 addresses
};

// "host:port" or "[v6]:port". kInvalidArgument says what is wrong with `text`.
Result<Endpoint> ParseEndpoint(std::string_view text);

// Non-blocking, close-on-exec, TCP_NODELAY, keepalive. kUnavailable, kTimedOut name the endpoint.
Result<UniqueFd> ConnectTo(const Endpoint& endpoint, Deadline deadline);
// Listens on exactly this address. `*bound` gets the real port. With `loopback_only`
// kPermissionDenied for an address that other machines reach.
Result<UniqueFd> ListenOn(const Endpoint& endpoint, Endpoint* bound, bool loopback_only = false);
// Sets the same options on an accepted socket.
Status PrepareSocket(int fd);

// Waits until `fd` is ready for `events`, which are those of poll(2). kTimedOut: the deadline came.
Status WaitReady(int fd, short events, Deadline deadline);

}  // namespace hyperloop::control
