// Links runs the turn of queue pairs whose peer is in another engine. It hands each packet that
// arrives to the part that handles it, and makes the parts send what is due.
//
// A session ties one life of the requester to one life of the responder; the life of a queue pair
// begins anew with each reset. The requester draws a nonce when it first has something to send. The
// responder draws the session number when it grants a session for that nonce. Requests of an
// earlier life of either end carry another number and are refused, however late they arrive.
//
// May call: LinkTraffic, LinkWork, RemoteRequester, RemoteResponder, Routes, ServiceAsks, Services,
// Turn.
#pragma once

#include <span>

#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/remote_requester.h"
#include "softrnic/engine/remote_responder.h"
#include "softrnic/engine/routes.h"
#include "softrnic/engine/service_asks.h"
#include "softrnic/engine/services.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

class Links {
 public:
  Links(LinkTraffic& traffic, LinkWork& link_work, RemoteRequester& requester,
        RemoteResponder& responder, Routes& routes, ServiceAsks& asks, Services& services,
        Turn& turn)
      : traffic_(traffic),
        link_work_(link_work),
        requester_(requester),
        responder_(responder),
        routes_(routes),
        asks_(asks),
        services_(services),
        turn_(turn) {}

  // Handles up to `budget` events, and sends packets for up to as many queue pairs, while the
  // turn's bytes last (LinkTraffic). Returns how many steps that took.
  size_t Poll(size_t budget);

 private:
  void HandlePacket(LinkId from, std::span<const std::byte> bytes);
  void HandleRoute(const LinkEvent& event);
  void Dispatch(LinkId from, const Packet& packet);

  LinkTraffic& traffic_;
  LinkWork& link_work_;
  RemoteRequester& requester_;
  RemoteResponder& responder_;
  Routes& routes_;
  ServiceAsks& asks_;
  Services& services_;
  Turn& turn_;
};

}  // namespace hyperloop::softrnic
