// Server: shows a page of metrics, or some pages, by HTTP, on threads of its own (civetweb).
//
// Whoever reaches the port may read them, and do nothing else. So it listens on loopback unless the
// caller says aloud that other machines may come. Strangers cost bounded time and memory: kThreads
// threads, which take the lowest priority unless told otherwise, serve a connection at a time each,
// and give each `patience` for its header, however it drips; the next kQueued connections wait, and
// kBacklog in the kernel. No body is read. No request reaches the rest of the program: each is
// answered with what the program made last.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"

namespace hyperloop::metrics {

struct ServerOptions {
  std::string address;  // numeric, "127.0.0.1:9464" or "[::1]:9464"; port 0: a free one
  bool open = false;    // it may be an address that other machines reach
  std::chrono::milliseconds patience{1000};  // with each connection
  // The command line's names for the first two, for messages.
  std::string_view address_option = "--metrics", open_option = "--metrics-open";
  // For messages: what is shown, and where to look first.
  std::string_view shows = "metrics", first_path = "/metrics";
  // Its threads take the lowest priority. Not for answers that others wait for.
  bool lowest_priority = true;
};

// What is said to whoever asks for a path.
struct Answer {
  static constexpr const char* kPage = "text/plain; version=0.0.4; charset=utf-8";
  static constexpr const char* kText = "text/plain; charset=utf-8";
  static constexpr const char* kJson = "application/json";

  int status = 200;                         // also 404 and 503
  const char* type = kText;                 // a constant
  std::shared_ptr<const std::string> body;  // null: there is nothing to show now, which is a 503
};

class Server {
 public:
  static constexpr int kThreads = 64;
  // Returns the page. Several threads call it, as often as strangers like. It may throw
  // std::bad_alloc or return null, which the client is told.
  using MakePage = std::function<std::shared_ptr<const std::string>()>;
  // The same for servers that show more than metrics: returns what is at `path`, such as
  // "/metrics".
  using MakeAnswer = std::function<Answer(std::string_view path)>;

  // Listens, and writes the address to `log`. kInvalidArgument: it is no numeric address with a
  // port, or other machines reach it and `open` is not set. kUnavailable: it is in use, or not this
  // machine's.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, MakePage page,
                                               Log& log);
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options, MakeAnswer answer,
                                               Log& log);
  // Waits until no thread calls the page's maker any more: at most `patience` and a second.
  virtual ~Server() = default;
  // With the real port.
  virtual const std::string& address() const = 0;
};

}  // namespace hyperloop::metrics
