// ServiceAsks: the asking end of the connection agent between daemons. It asks for a service of a
// host on another machine by packet. The client's command gets "busy" until the answer has come,
// and then the answer. Asking again sends the packet again now and then, because a link that breaks
// loses the packets under way.
//
// May call: QpTable, LinkTraffic, Clock, Dice.
#pragma once

#include "softrnic/engine/clock.h"
#include "softrnic/engine/dice.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"

namespace hyperloop::softrnic {

class ServiceAsks {
 public:
  ServiceAsks(QpTable& qps, LinkTraffic& traffic, const Clock& clock, Dice& dice)
      : qps_(qps), traffic_(traffic), clock_(clock), dice_(dice) {}

  // kBusy: asked, no answer yet.
  Status Ask(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
             ConnectServiceReply* reply);
  void HandleReply(LinkId from, const Packet& p);
  // The client's queue pair goes, or asks for another service: the other end may forget this one.
  // It need not hear of it.
  void Release(Qp& qp);

 private:
  QpTable& qps_;
  LinkTraffic& traffic_;
  const Clock& clock_;
  Dice& dice_;
};

}  // namespace hyperloop::softrnic
