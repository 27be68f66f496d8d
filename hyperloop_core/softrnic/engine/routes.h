// Routes: by which link the queue pairs of a host on another machine are reached.
//
// May call: Clients, LinkTraffic.
#pragma once

#include <map>
#include <string>

#include "softrnic/engine/clients.h"
#include "softrnic/engine/link_traffic.h"

namespace hyperloop::softrnic {

class Routes {
 public:
  Routes(const Clients& clients, const LinkTraffic& traffic)
      : clients_(clients), traffic_(traffic) {}

  // Engine::AddPeer.
  Status AddPeer(const std::string& host, LinkId link);
  // kNoLink: the address of a host that is attached here, or of nobody known.
  LinkId To(const GidBytes& gid) const;
  LinkId ToHost(const std::string& host) const;
  // Not OK: the queue pair that `args` connects to can be reached neither here nor by a link.
  Status Check(const ModifyQpArgs& args) const;

 private:
  const Clients& clients_;
  const LinkTraffic& traffic_;
  std::map<uint64_t, LinkId> peers_;  // by GID prefix
};

}  // namespace hyperloop::softrnic
