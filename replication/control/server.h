// ControlServer: answers requests on a TCP address, many connections, one thread, no timers while
// idle.
//
// Whoever connects can cost it no more than a bounded buffer and a place among kMaxConnections: a
// frame that does not arrive whole within kFrameTimeout, an answer that is not taken within it, and
// anything malformed end the connection (malformed: after an Error frame). When all places are
// taken the connection that was idle longest is closed. A request whose asker has closed its end by
// the time it is read is dropped. Not thread safe.
#pragma once

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "control/endpoint.h"
#include "control/messages.h"

struct pollfd;

namespace hyperloop::control {

class ControlServer {
 public:
  static constexpr size_t kMaxConnections = 64;
  static constexpr std::chrono::seconds kFrameTimeout{5};

  // Returns the reply's body; called by Serve alone.
  using Handler = std::function<BodyUnion(const BodyUnion& request)>;

  static Result<std::unique_ptr<ControlServer>> Listen(const Endpoint& endpoint, Handler handler);

  const Endpoint& endpoint() const { return endpoint_; }  // with the real port

  // Sleeps until something arrives, `until` or a readable `wake_fd` (−1: none); serves what is
  // there; returns. Ok also when nothing came.
  Status Serve(Deadline until, int wake_fd);

  size_t connections() const { return connections_.size(); }

 private:
  struct Connection {
    Fd fd;
    std::vector<uint8_t> in;   // a frame as far as it arrived
    std::vector<uint8_t> out;  // a reply as far as it is not sent
    bool closing = false;      // once `out` is sent
    Deadline idle_since;
    Deadline deadline = Deadline::max();  // of the frame or the reply under way
  };

  ControlServer(Fd listener, Endpoint endpoint, Handler handler);
  void Accept();
  // False: the connection is over.
  bool Progress(Connection& connection, short ready);
  bool Receive(Connection& connection);
  void HandleFrame(Connection& connection);
  bool Flush(Connection& connection);
  Deadline NextDeadline(Deadline until) const;

  Fd listener_;
  Endpoint endpoint_;
  Handler handler_;
  std::list<Connection> connections_;
  Deadline accept_after_ = Deadline::min();  // no descriptor was left to accept with
};

}  // namespace hyperloop::control
