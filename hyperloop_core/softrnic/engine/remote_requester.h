// RemoteRequester: the requester's half of queue pairs with a remote peer. It opens the session,
// turns WQEs (Transit) into packets and answers into completions, sends again what was lost, and
// fails requests that get no answer.
//
// A payload is copied into a packet when the packet is made, and the packet is kept until it is
// acknowledged. A WQE's buffers still belong to the device until its completion. If memory runs out
// in work for a queue pair, its client is evicted.
//
// May call: KeyTable, Durability, QpTable, Transit, LinkWork, LinkTraffic, Waiters, Clients, Clock.
#pragma once

#include "softrnic/engine/clients.h"
#include "softrnic/engine/clock.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/transit.h"

namespace hyperloop::softrnic {

class RemoteRequester {
 public:
  // `deferred`: SingleSteps choose when WQEs complete (EngineTestHooks::defer_delivery).
  RemoteRequester(bool deferred, KeyTable& keys, Durability& durability, QpTable& qps,
                  Transit& transit, LinkWork& link_work, LinkTraffic& traffic, Clients& clients,
                  const Clock& clock)
      : deferred_(deferred),
        keys_(keys),
        durability_(durability),
        qps_(qps),
        transit_(transit),
        link_work_(link_work),
        traffic_(traffic),
        clients_(clients),
        clock_(clock) {}

  // Sends as many packets of `qp` as the link, the bounds of Remote and the turn allow: first those
  // that are sent again, then new ones.
  void Pump(Qp& qp);
  // Calls Pump for up to `most` queue pairs that have packets to send. Returns how many it took.
  size_t PumpSome(size_t most);
  // Acts on the timers that have run out. True if there was one.
  bool CheckTimers();

  // --- what arrives
  void HandleLinkUp(LinkId link);
  void HandleRoom(LinkId link);
  // Queue pairs whose peer is of the host with `prefix`, and whose link is another one than `link`,
  // have none any more: their request under way, or the next one, fails as after a timeout.
  // Requests of the peer are refused. With kNoLink those that answer for a service are among them.
  void EndOtherRoutes(uint64_t prefix, LinkId link);
  // An answer to a request for a session.
  void HandleSession(LinkId from, const Packet& p);
  // An answer to a request.
  void HandleAnswer(LinkId from, const Packet& p);

 private:
  bool LinkTakes(Qp& qp);
  void SendConnect(Qp& qp);
  bool TimerDue(Qp& qp, uint64_t now);
  bool ResolveLocal(const Qp& qp, const Inflight& entry, SegmentList* local) const;
  bool PackNext(Qp& qp, Inflight& entry);
  bool CopyPayload(const SegmentList& from, std::byte* to) const;
  void TakeAnswers(Qp& qp, const Packet& p);
  void PopSent(Qp& qp);
  bool TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p);
  void FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome);
  void FailSent(Qp& qp, uint8_t syndrome);
  // Gives the WQE its error. The queue runs nothing after it.
  void EndWith(Qp& qp, Inflight& entry, uint8_t syndrome);
  void Complete(Qp& qp);

  const bool deferred_;
  KeyTable& keys_;
  Durability& durability_;
  QpTable& qps_;
  Transit& transit_;
  LinkWork& link_work_;
  LinkTraffic& traffic_;
  Clients& clients_;
  const Clock& clock_;
  uint64_t timers_ns_ = 0;  // when CheckTimers looked last
};

}  // namespace hyperloop::softrnic
