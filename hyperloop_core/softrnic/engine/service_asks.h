// ServiceAsks: the asking end of the connection agent between daemons. It asks by packet for a
// service of a host on another machine. The client repeats its command, which gets "busy" until the
// answer has come, and then the answer. A repeated command now and then sends the packet again,
// because a link that breaks loses the packets under way.
//
// May call: QpTable, LinkTraffic, Clock.
#pragma once

#include "softrnic/engine/clock.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"

namespace hyperloop::softrnic {

class ServiceAsks {
 public:
  ServiceAsks(QpTable& qps, LinkTraffic& traffic, const Clock& clock)
      : qps_(qps), traffic_(traffic), clock_(clock) {}

  // Asks for the service, or takes the answer that has come. kBusy: there is no answer yet.
  // Otherwise the status that the other end gave.
  Status Ask(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
             ConnectServiceReply* reply);
  void HandleReply(LinkId from, const Packet& p);
  // Tells the other end that the queue pair needs its service no more, because it is destroyed or
  // asks for another service. The other end also copes if that message is lost.
  void Release(Qp& qp);

 private:
  QpTable& qps_;
  LinkTraffic& traffic_;
  const Clock& clock_;
};

}  // namespace hyperloop::softrnic
