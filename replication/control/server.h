// ControlServer: answers requests on a TCP address. It serves many connections on one thread, and
// does not wake up while idle.
//
// A connection is a stranger's until both ends have introduced themselves (trust.h). Strangers have
// places of their own (kStrangerLimits; a source is an IPv4 address or an IPv6 network of 64 bits),
// and admission.h says which one gives way to a new one; one that has sent nothing goes before one
// that has. So a known peer's connection is never closed for a stranger, and known peers are let in
// while strangers flood the port. A stranger's bytes reach only its own channel, cost a bounded
// buffer, and must form a complete introduction within kFrameTimeout.
//
// A known peer's connection ends too if a message does not arrive whole within kFrameTimeout, if an
// answer is not taken within it, or if a message is malformed (then an Error is sent first). Known
// peers have kMaxConnections places. For one more, the peer with most connections loses the one
// that was idle longest. A request is dropped if its peer has closed its end by the time the
// request is read. If memory runs out for a connection or its request, that connection ends. Not
// thread safe.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/endpoint.h"
#include "control/message_channel.h"
#include "control/messages.h"
#include "control/trust.h"
#include "hyperloop/core/log.h"
#include "hyperloop/identity/admission.h"

namespace hyperloop::control {

class ControlServer {
 public:
  static constexpr size_t kMaxConnections = 64;
  static constexpr StrangerLimits kStrangerLimits{.of_source = 64, .of_known = 64, .all = 256};
  static constexpr std::chrono::seconds kFrameTimeout{5};

  // Returns the reply's body. Called only by Serve, and only for requests that the peer may make.
  // It may throw std::bad_alloc: then the peer gets no answer, as if the connection had been cut.
  using Handler = std::function<BodyUnion(const BodyUnion& request)>;

  // Without keys it listens on loopback only: kPermissionDenied names the remedy. Refused peers are
  // reported to `log` (may be null), at most once in kReportInterval.
  // Requests have at most `max_request` bytes.
  static Result<std::unique_ptr<ControlServer>> Listen(const Endpoint& endpoint, Trust trust,
                                                       Handler handler,
                                                       std::shared_ptr<Log> log = nullptr,
                                                       uint32_t max_request = kMaxRequest);

  const Endpoint& endpoint() const { return endpoint_; }  // with the real port

  // Sleeps until bytes or connections arrive, `until` is reached or `wake_fd` (−1: none) is
  // readable; serves what arrived; returns. Ok also if nothing arrived.
  Status Serve(Deadline until, int wake_fd);

 private:
  static constexpr std::chrono::seconds kReportInterval{1};
  static constexpr size_t kMaxKnownSources = 256;

  struct Connection {
    UniqueFd fd;
    std::string source;  // its address without the port, or its network
    Deadline since;      // when it became idle; of a stranger: when it connected
    // Made when the peer sends its first bytes, so that silent peers cost no memory.
    std::unique_ptr<MessageChannel> channel;
    std::vector<std::byte> out;           // bytes not sent yet
    bool known = false;                   // the channel is open
    std::string name;                     // name of a known peer; without keys its address
    bool more = false;                    // there may be another request in the channel
    bool answering = false;               // `out` has an answer that is not sent yet
    bool closing = false;                 // close when `out` is sent
    Deadline deadline = Deadline::max();  // for the introduction, the request or the reply
  };
  using Connections = std::list<Connection>;

  ControlServer(UniqueFd listener, Endpoint endpoint, Trust trust, Handler handler,
                std::shared_ptr<Log> log, uint32_t max_request);
  void Accept();
  void Admit(UniqueFd fd, std::string source);
  // Returns the stranger that has to make room for one from `source`. end(): there is room.
  Connections::iterator StrangerToGiveUp(std::string_view source);
  void MakeRoomForKnown(const Connection& newcomer);
  // Where there is no place for anybody: strangers before known peers, silent ones first.
  static bool GivesWayBefore(const Connection& one, const Connection& other);

  // False: the connection is over.
  bool Progress(Connection& connection, short ready);
  bool Receive(Connection& connection);
  // Handles at most one of the requests that have arrived.
  bool Advance(Connection& connection);
  void Welcome(Connection& connection);
  void Handle(Connection& connection, std::span<const uint8_t> message);
  bool Flush(Connection& connection);
  void Report(const Connection& connection, std::string_view why);
  void Report(std::string_view who, std::string_view source, std::string_view why);
  Deadline NextDeadline(Deadline until) const;

  UniqueFd listener_;
  Endpoint endpoint_;
  const Trust trust_;
  const Handler handler_;
  const std::shared_ptr<Log> log_;
  const uint32_t max_request_;
  Connections connections_;
  KnownSources known_sources_;               // at most kMaxKnownSources
  std::vector<pollfd> ready_;                // has room for all connections
  Deadline accept_after_ = Deadline::min();  // set when no descriptor was left to accept with
  Deadline report_after_ = Deadline::min();
  uint64_t unreported_ = 0;
};

}  // namespace hyperloop::control
