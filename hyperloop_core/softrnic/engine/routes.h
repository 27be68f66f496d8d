// Routes: which link leads to the queue pairs of a host on another machine.
//
// May call: Clients, LinkTraffic.
#pragma once

#include <string>

#include "softrnic/engine/clients.h"
#include "softrnic/engine/link_traffic.h"

namespace hyperloop::softrnic {

class Routes {
 public:
  Routes(const Clients& clients, const LinkTraffic& traffic)
      : clients_(clients), traffic_(traffic) {}

  // As Engine::AddRoute.
  Status Add(const std::string& host, LinkId link);
  // As LinkEvent::Kind::kRoute, which `route` is of; null: no link leads to the host any more.
  // Needs no memory.
  void Set(uint64_t prefix, Route* route);
  // The link to the host with this GID. kNoLink: the host is attached here, or no link leads to it.
  LinkId To(const GidBytes& gid) const;
  // The link to the host with this name. kNoLink: no link leads to it.
  LinkId ToHost(const std::string& host) const;
  // kUnavailable: the queue pair that `args` connects to can be reached neither here nor by a link.
  Status Check(const ModifyQpArgs& args) const;
  // What to do about a host, whose name may be unknown, that no link leads to.
  static std::string PeerRemedy(const std::string& host);

 private:
  const Clients& clients_;
  const LinkTraffic& traffic_;
  RouteMap links_;
};

}  // namespace hyperloop::softrnic
