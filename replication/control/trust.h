// Trust: who may be at the other end of a control connection, and what it may ask for. All channels
// of the control plane are made here.
//
// With a keys directory both ends prove their identity. A primary talks only to hosts to which its
// file `trusted` gives the role replica. At an endpoint that `trusted` names, it talks only to the
// host of that line. A replica answers every host that its own `trusted` lists, and lets only those
// with the role primary change anything. Without keys nothing is proved, and a server listens on
// loopback only.
//
// Files that changed are read again when a connection begins. Copies share one key ring, and may be
// used by several threads.
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
  // Loads keys directory `dir`; an empty `dir` means no keys. `log`, which may be null, reports
  // changed files that cannot be used. Errors are KeyRing::Load's.
  static Result<Trust> Load(const std::string& dir, std::shared_ptr<Log> log);

  bool keyed() const { return ring_ != nullptr; }

  // A channel to the replica at `endpoint`.
  std::unique_ptr<identity::SecureChannel> Dial(const Endpoint& endpoint) const;
  // A channel to a peer that has connected.
  std::unique_ptr<identity::SecureChannel> Answer() const;

  // Checks that `peer`, which has the role replica, may be at `endpoint`. kPermissionDenied:
  // `trusted` places it elsewhere.
  Status CheckPlace(const identity::Peer& peer, const Endpoint& endpoint) const;
  // Checks that `peer` may say that its RNIC is that of `host`. kPermissionDenied: another peer has
  // that name.
  Status CheckHost(const identity::Peer& peer, std::string_view host) const;
  // Checks that `peer` has the role that this request needs. kPermissionDenied: it has not.
  // kNotSupported: it is a proposal of a program that vouches for nothing (proposal.h).
  Status CheckRequest(const identity::Peer& peer, const BodyUnion& request) const;

  // The keys as they are now; null: there are none.
  std::shared_ptr<const identity::KeyRing> Ring() const;

 private:
  void Refresh() const;

  std::shared_ptr<identity::KeyRing> ring_;
  std::shared_ptr<Log> log_;
};

}  // namespace hyperloop::control
