// ControlServer: answers requests on a TCP address, many connections, one thread, no timers while
// idle.
//
// A connection is a stranger's until both ends have introduced themselves (trust.h). Strangers have
// places of their own, kMaxStrangers in all and kMaxStrangersOfSource from one address: when they
// are taken, the newcomer takes the place of another stranger, one that has said nothing yet if
// there is one, and of the address that has most of them. So whoever is known is never closed for a
// stranger, and is let in while strangers flood. A stranger's words reach nobody but its own
// channel, cost a bounded buffer, and must be complete within kFrameTimeout.
//
// Of a known peer, too, a message that does not arrive whole within kFrameTimeout, an answer that
// is not taken within it, and anything malformed end the connection (malformed: after an Error).
// Known peers have kMaxConnections places; for one more, the connection is closed that was idle
// longest of the peer that has most. A request whose asker has closed its end by the time it is
// read is dropped. Not thread safe.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "control/endpoint.h"
#include "control/message_channel.h"
#include "control/messages.h"
#include "control/trust.h"
#include "hyperloop/core/log.h"

namespace hyperloop::control {

class ControlServer {
 public:
  static constexpr size_t kMaxConnections = 64;
  static constexpr size_t kMaxStrangers = 256;
  static constexpr size_t kMaxStrangersOfSource = 64;
  static constexpr std::chrono::seconds kFrameTimeout{5};

  // Returns the reply's body; called by Serve alone, for requests that the peer may make.
  using Handler = std::function<BodyUnion(const BodyUnion& request)>;

  // Without keys on loopback only: kPermissionDenied names the remedy. `log` (may be null) hears of
  // those who are refused, at most once in kReportInterval.
  static Result<std::unique_ptr<ControlServer>> Listen(const Endpoint& endpoint, Trust trust,
                                                       Handler handler,
                                                       std::shared_ptr<Log> log = nullptr);

  const Endpoint& endpoint() const { return endpoint_; }  // with the real port

  // Sleeps until something arrives, `until` or a readable `wake_fd` (−1: none); serves what is
  // there; returns. Ok also when nothing came.
  Status Serve(Deadline until, int wake_fd);

  size_t connections() const { return connections_.size(); }

 private:
  static constexpr std::chrono::seconds kReportInterval{1};

  struct Connection {
    Fd fd;
    std::string source;  // its address, without the port
    Deadline since;      // idle, or, of a stranger, connected
    // Made when it says something: a silent crowd costs nothing.
    std::unique_ptr<MessageChannel> channel;
    std::vector<std::byte> out;           // what is not sent yet
    bool known = false;                   // the channel is open
    std::string name;                     // then: the peer's; without keys its address
    bool more = false;                    // there may be another request in the channel
    bool answering = false;               // until `out` is sent
    bool closing = false;                 // once `out` is sent
    Deadline deadline = Deadline::max();  // of the introduction, the request or the reply
  };
  using Connections = std::list<Connection>;

  ControlServer(Fd listener, Endpoint endpoint, Trust trust, Handler handler,
                std::shared_ptr<Log> log);
  void Accept();
  void Admit(Fd fd, std::string source);
  void MakeRoomForStranger(const std::string& source);
  void MakeRoomForKnown(const Connection& newcomer);
  // The stranger that makes room: of `source`, or of all when empty; end(): there is none.
  Connections::iterator LeastStranger(const std::string& source);

  // False: the connection is over.
  bool Progress(Connection& connection, short ready);
  bool Receive(Connection& connection);
  // The requests in what has arrived; at most one is handled.
  bool Advance(Connection& connection);
  void Welcome(Connection& connection);
  void Handle(Connection& connection, std::span<const uint8_t> message);
  bool Flush(Connection& connection);
  void Report(const Connection& connection, const Status& why);
  Deadline NextDeadline(Deadline until) const;

  Fd listener_;
  Endpoint endpoint_;
  const Trust trust_;
  const Handler handler_;
  const std::shared_ptr<Log> log_;
  Connections connections_;
  Deadline accept_after_ = Deadline::min();  // no descriptor was left to accept with
  Deadline report_after_ = Deadline::min();
  uint64_t unreported_ = 0;
};

}  // namespace hyperloop::control
