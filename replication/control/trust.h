// Trust: who may be at the other end of a control connection, and what it may ask for. The one
// place where channels of the control plane are made.
//
// With a keys directory both ends prove their identity. A primary talks to whom its `trusted` gives
// the role replica, and where that names an endpoint, to nobody else there. A replica answers
// everybody whom its own `trusted` knows, and lets those with the role primary alone change
// anything. Without keys nothing is proved; such a server listens on loopback only.
//
// Files that changed are read again when a connection begins. Copies share one key ring; safe for
// use by several threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "control/endpoint.h"
#include "control/messages.h"
#include "hyperloop/core/log.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/identity/secure_channel.h"

namespace hyperloop::control {

class Trust {
 public:
  Trust() = default;  // no keys
  // Of keys directory `dir`; none when empty. `log`, which may be null, is told when files that
  // changed cannot be used. Errors are KeyRing::Load's.
  static Result<Trust> Load(const std::string& dir, std::shared_ptr<Log> log);

  bool keyed() const { return ring_ != nullptr; }

  // Towards the replica at `endpoint`.
  std::unique_ptr<identity::SecureChannel> Dial(const Endpoint& endpoint) const;
  // Towards whoever has connected.
  std::unique_ptr<identity::SecureChannel> Answer() const;

  // Whether `peer`, which has the role replica, may be at `endpoint`: kPermissionDenied if
  // `trusted` places it elsewhere.
  Status CheckPlace(const identity::Peer& peer, const Endpoint& endpoint) const;
  // Whether `peer` may say that its RNIC is that of `host`: kPermissionDenied if that is another
  // one's name.
  Status CheckHost(const identity::Peer& peer, std::string_view host) const;
  // Whether `peer` may ask for this: kPermissionDenied.
  Status CheckRequest(const identity::Peer& peer, Body request) const;

 private:
  void Refresh() const;

  std::shared_ptr<identity::KeyRing> ring_;
  std::shared_ptr<Log> log_;
};

}  // namespace hyperloop::control
