#include "softrnic/engine/links.h"

#include <new>

namespace hyperloop::softrnic {

size_t Links::Poll(size_t budget) {
  traffic_.BeginTurn();
  turn_.Begin();
  size_t done = link_work_.holding() == 0 ? 0 : responder_.ServeHeld(budget);
  done += turn_.extra();
  LinkEvent event;
  while (done < budget && traffic_.MayReceive() && traffic_.port()->Receive(&event)) {
    ++done;
    switch (event.kind) {
      case LinkEvent::Kind::kPacket:
        traffic_.CountReceived(event.packet.size());
        turn_.Begin();
        HandlePacket(event.link, event.packet);
        done += turn_.extra();
        break;
      case LinkEvent::Kind::kUp:
        requester_.HandleLinkUp(event.link);
        break;
      case LinkEvent::Kind::kRoom:
        requester_.HandleRoom(event.link);
        break;
      case LinkEvent::Kind::kRoute:
        HandleRoute(event);
        break;
    }
  }
  if (link_work_.AnyAck()) responder_.SendAcks();
  turn_.Begin();
  done += requester_.PumpSome(budget);
  done += turn_.extra();
  if (link_work_.AnyWatched() && requester_.CheckTimers()) ++done;
  return done;
}

void Links::HandleRoute(const LinkEvent& event) {
  routes_.Set(event.prefix, event.link == kNoLink ? nullptr : event.route);
  requester_.EndOtherRoutes(event.prefix, event.link);
}

// Drops bytes that are no packet. The port has logged them, or closed the link.
void Links::HandlePacket(LinkId from, std::span<const std::byte> bytes) {
  try {
    if (const Result<Packet> packet = ParsePacket(bytes); packet.ok()) Dispatch(from, *packet);
  } catch (const std::bad_alloc&) {  // the sender takes the packet for lost
  }
}

void Links::Dispatch(LinkId from, const Packet& packet) {
  switch (packet.type) {
    case PacketType::kConnect:
      return responder_.HandleConnect(from, packet);
    case PacketType::kAccept:
    case PacketType::kRefuse:
      return requester_.HandleSession(from, packet);
    case PacketType::kSend:
    case PacketType::kWrite:
    case PacketType::kRead:
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
      return responder_.HandleRequest(from, packet);
    case PacketType::kAck:
    case PacketType::kReadResponse:
    case PacketType::kAtomicResponse:
    case PacketType::kNak:
    case PacketType::kRnrNak:
      return requester_.HandleAnswer(from, packet);
    case PacketType::kServiceRequest:
      turn_.AddSteps(kTurnSteps);  // it makes a queue pair, and may have to find one to destroy
      return services_.HandleRequest(from, packet);
    case PacketType::kServiceReply:
      return asks_.HandleReply(from, packet);
    case PacketType::kServiceRelease:
      return services_.HandleRelease(packet);
  }
}

}  // namespace hyperloop::softrnic
