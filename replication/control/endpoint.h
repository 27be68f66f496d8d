// Endpoints ("host:port") and the TCP sockets that are made for them. All functions are thread
// safe.
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

// Returns a connected socket that is non-blocking and close-on-exec, with TCP_NODELAY and
// keepalive. kInvalidArgument: the host is unknown. kUnavailable: it cannot be resolved now, or
// refuses the connection. kTimedOut: `deadline` came first. The message names the endpoint. `stop`:
// as WaitReady's.
Result<UniqueFd> ConnectTo(const Endpoint& endpoint, Deadline deadline, int stop = -1);
// Returns a socket that listens on exactly this address. `*bound` becomes the endpoint with the
// real port. kPermissionDenied: `loopback_only` is set, and other machines reach the address.
Result<UniqueFd> ListenOn(const Endpoint& endpoint, Endpoint* bound, bool loopback_only = false);
// Sets the options of ConnectTo's sockets on an accepted socket.
Status PrepareSocket(int fd);

// Waits until `fd` is ready for `events` (of poll(2)). kTimedOut: `deadline` came first, or `stop`,
// a descriptor unless it is −1, is readable.
Status WaitReady(int fd, short events, Deadline deadline, int stop = -1);

}  // namespace hyperloop::control
