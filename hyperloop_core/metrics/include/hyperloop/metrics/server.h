// Server: shows a page of metrics by HTTP, on threads of its own (civetweb).
//
// Whoever reaches the port may read the page, and do nothing else. So it listens on loopback unless
// the caller says aloud that other machines may come. Strangers cost bounded time and memory:
// kThreads threads, which take the lowest priority if they may, serve a connection at a time each,
// and give each `patience` for its header, however it drips; the next kQueued connections wait, and
// kBacklog in the kernel. No body is read. No request reaches the rest of the program: each is
// answered with the page that the program made last.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"

namespace hyperloop::metrics {

struct ServerOptions {
  std::string address;  // numeric, "127.0.0.1:9464" or "[::1]:9464"; port 0: a free one
  bool open = false;    // it may be an address that other machines reach
  std::chrono::milliseconds patience{1000};  // with each connection
};

class Server {
 public:
  static constexpr int kThreads = 64;
  // Returns the page. Several threads call it, as often as strangers like. It may throw
  // std::bad_alloc or return null, which the client is told.
  using MakePage = std::function<std::shared_ptr<const std::string>()>;

  // Listens, and writes the address to `log`. kInvalidArgument: it is no numeric address with a
  // port, or other machines reach it and `open` is not set. kUnavailable: it is in use, or not this
  // machine's.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, MakePage page,
                                               Log& log);
  // Waits until no thread calls the page's maker any more: at most `patience` and a second.
  virtual ~Server() = default;
  // With the real port.
  virtual const std::string& address() const = 0;
};

}  // namespace hyperloop::metrics
