// RemoteRequester: the requester's half of queue pairs with a remote peer. It opens the session,
// turns WQEs (Transit) into packets and answers into completions, sends again what was lost, and
// ends what gets no answer.
//
// Payloads are copied into packets when they are made, and packets kept until they are
// acknowledged; a WQE's buffers are the caller's again with its completion, as ever. What runs out
// of memory for a queue pair ends its client.
//
// May call: KeyTable, Durability, QpTable, Transit, LinkWork, LinkTraffic, Clients, Clock.
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
  // `deferred`: completions are the schedule's to choose.
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

  // Hands the link what it, the window and the turn take: first what goes again, then new packets.
  void Pump(Qp& qp);
  // Pumps for up to `most` of those that have packets. Returns how many.
  size_t PumpSome(size_t most);
  // True if a timer ended.
  bool CheckTimers();

  // --- what arrives
  void HandleLinkUp(LinkId link);
  void HandleRoom(LinkId link);
  // An answer to a request for a session.
  void HandleSession(LinkId from, const Packet& p);
  // An answer to a request.
  void HandleAnswer(LinkId from, const Packet& p);

 private:
  bool LinkTakes(Qp& qp);
  void SendConnect(Qp& qp);
  bool TimerDue(Qp& qp, uint64_t now);
  bool PackNext(Qp& qp, Inflight& entry);
  void TakeAnswers(Qp& qp, const Packet& p);
  void PopSent(Qp& qp);
  bool TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p);
  void FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome);
  void FailSent(Qp& qp, uint8_t syndrome);
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
