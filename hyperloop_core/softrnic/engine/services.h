// Services: what clients publish and connect to by name. It is the connection agent of the device,
// which clients here use by command, and clients of other daemons by packet.
//
// May call: QpTable, Clients, LinkTraffic, Routes, ServiceAsks, QpLife.
#pragma once

#include "softrnic/engine/clients.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/qp_life.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/routes.h"
#include "softrnic/engine/service_asks.h"

namespace hyperloop::softrnic {

class Services {
 public:
  Services(QpTable& qps, Clients& clients, LinkTraffic& traffic, const Routes& routes,
           ServiceAsks& asks, QpLife& life)
      : qps_(qps),
        clients_(clients),
        traffic_(traffic),
        routes_(routes),
        asks_(asks),
        life_(life) {}

  Status Publish(Context& c, const PublishArgs& args);
  // Makes a queue pair in the publisher's protection domain that only answers READs, connected to
  // the caller's.
  Status Connect(Context& c, const ConnectServiceArgs& args, ConnectServiceReply* reply);
  // A client of another daemon asks for a service, or no longer needs one.
  void HandleRequest(LinkId from, const Packet& p);
  void HandleRelease(const Packet& p);

 private:
  // The queue pair that answers the request `p` of the host with this GID.
  Result<Qp*> AnswererFor(Service& service, Host& host, const GidBytes& gid, const Packet& p);
  // Makes room for another answering queue pair of `c`. If the host has as many as a host may, its
  // oldest one is destroyed; else, if `c` has as many as it may, the oldest of all.
  void MakeRoom(const Context& c, const GidBytes& gid);

  QpTable& qps_;
  Clients& clients_;
  LinkTraffic& traffic_;
  const Routes& routes_;
  ServiceAsks& asks_;
  QpLife& life_;
  uint64_t asked_ = 0;
};

}  // namespace hyperloop::softrnic
