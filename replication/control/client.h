// ControlClient: one connection to a replica's control endpoint, one request at a time.
//
// Every call is bounded by its timeout. An error names the endpoint. After a transport error the
// connection is closed, and each later call fails with kUnavailable: connect anew. An error that
// the replica answered leaves the connection usable. Not thread safe.
//
// The first call introduces both ends to each other. A replica that is crowded with strangers may
// close a connection before it knows the peer. The call then connects again until its timeout.
// Bytes that were changed on the way are kUnavailable, because they say nothing about the replica.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "control/endpoint.h"
#include "control/message_channel.h"
#include "control/messages.h"
#include "control/trust.h"
#include "hyperloop/core/text.h"

namespace hyperloop::control {

class ControlClient {
 public:
  // kUnavailable: nobody listens there; the message says how to start a replica. `port`, unless 0:
  // where else the replica at `endpoint` listens. `stop`: as EndWhen's.
  static Result<std::unique_ptr<ControlClient>> Connect(const Endpoint& endpoint,
                                                        const Trust& trust,
                                                        std::chrono::nanoseconds timeout,
                                                        uint16_t port = 0, int stop = -1);

  // From now on a call that waits ends with kTimedOut once this descriptor is readable; −1: none.
  void EndWhen(int stop) { stop_ = stop; }

  // Sends `request` and returns the answer of type Reply. An answer of type Error becomes the
  // status that it holds. kPermissionDenied also: the replica is not the expected one, or does not
  // trust this end.
  template <class Reply, class Request>
  Result<Reply> Call(Request request, std::chrono::nanoseconds timeout) {
    HL_ASSIGN_OR_RETURN(const BodyUnion body,
                        Exchange(MakeBody(std::move(request)), Clock::now() + timeout));
    if (const Reply* reply = As<Reply>(body)) return *reply;
    return Unexpected(body);
  }

  const std::string& name() const { return name_; }
  // Who answers. Nobody before the first call, and without keys.
  identity::Peer peer() const { return channel_ == nullptr ? identity::Peer() : channel_->peer(); }
  // Whether the connection can be used: no transport error has closed it.
  bool connected() const { return static_cast<bool>(fd_); }

 private:
  ControlClient(UniqueFd fd, const Endpoint& endpoint, Endpoint place, const Trust& trust,
                std::string name)
      : fd_(std::move(fd)),
        endpoint_(endpoint),
        place_(std::move(place)),
        trust_(trust),
        name_(std::move(name)) {}
  Result<BodyUnion> Exchange(const BodyUnion& request, Deadline deadline);
  Result<BodyUnion> ExchangeOnce(const BodyUnion& request, Deadline deadline);
  Status Introduce(Deadline deadline);
  // kAborted: the replica closed the connection before the channel was open.
  Status IntroduceOnce(Deadline deadline);
  // Receives at least one more byte for the channel. kAborted: the replica closed the connection.
  Status ReceiveSome(Deadline deadline);
  Status SendOutput(Deadline deadline);
  Status Unexpected(const BodyUnion& body) const;

  UniqueFd fd_;
  const Endpoint endpoint_;  // of the replica, by which it is known
  const Endpoint place_;     // where this connection leads
  const Trust trust_;
  const std::string name_;
  std::unique_ptr<MessageChannel> channel_;
  int stop_ = -1;
};

}  // namespace hyperloop::control
