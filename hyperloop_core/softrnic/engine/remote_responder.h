// RemoteResponder: the responder's half of queue pairs with a remote peer. It grants sessions, runs
// each request once, in the order of its number, and answers it. When a request that ran comes
// again, it is acknowledged again, or gets the answer that was kept. A request that comes too early
// is dropped, and comes again after those before it. Requests behind a READ that waits for a disk
// are held.
//
// If memory runs out in work for a queue pair, its client is evicted.
//
// May call: KeyTable, QpTable, Responder, LinkWork, LinkTraffic, Clients, Clock, and the static
// functions of Durability.
#pragma once

#include <vector>

#include "softrnic/engine/clients.h"
#include "softrnic/engine/clock.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/responder.h"

namespace hyperloop::softrnic {

class RemoteResponder {
 public:
  RemoteResponder(KeyTable& keys, QpTable& qps, Responder& responder, LinkWork& link_work,
                  LinkTraffic& traffic, Clients& clients, const Clock& clock)
      : keys_(keys),
        qps_(qps),
        responder_(responder),
        link_work_(link_work),
        traffic_(traffic),
        clients_(clients),
        clock_(clock) {}

  // A request for a session.
  void HandleConnect(LinkId from, const Packet& p);
  void HandleRequest(LinkId from, const Packet& p) { HandleRequest(from, p, nullptr); }
  // Runs READs whose flush has ended and the requests held behind them, at most `budget` and as far
  // as the turn allows. Returns how many it ran.
  size_t ServeHeld(size_t budget);
  // Ends a turn: sends one acknowledgement for the SENDs and WRITEs of each queue pair, unless
  // nobody waits for it yet.
  void SendAcks();

 private:
  // `held`: the oldest of the held requests, from which `p` was parsed; null: `p` has just arrived.
  void HandleRequest(LinkId from, const Packet& p, HeldRequest* held);
  void RunNext(LinkId from, Qp& qp, const Packet& p, bool again);
  Outcome RunPacket(Qp& qp, const Packet& p, bool again, std::vector<std::byte>* answer);
  Outcome RunSend(Qp& qp, const Packet& p, const Request& request);
  Outcome RunLong(Qp& qp, const Packet& p, const Request& request);
  void HandleDuplicate(LinkId from, Qp& qp, const Packet& p);
  void Hold(LinkId from, Qp& qp, const Packet& p);
  bool ServeHeldOf(Qp& qp, size_t budget, size_t* done);
  void AcknowledgeLater(LinkId to, Qp& qp, uint32_t psn, bool awaited);
  void Answer(LinkId to, const Packet& request, PacketType type, uint8_t syndrome, uint32_t length);

  KeyTable& keys_;
  QpTable& qps_;
  Responder& responder_;
  LinkWork& link_work_;
  LinkTraffic& traffic_;
  Clients& clients_;
  const Clock& clock_;
};

}  // namespace hyperloop::softrnic
