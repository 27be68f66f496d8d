// Queue pairs whose peer is in another engine: routes, sessions, what arrives, and timeouts.
//
// A session ties one life of the requester (its nonce, drawn when it first has something to send)
// to one life of the responder (the session number, drawn when it grants one). Requests of an
// earlier life of either carry another number and are refused, however late they arrive.
#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

uint64_t LoadPrefix(const uint8_t* gid) {
  uint64_t prefix;
  std::memcpy(&prefix, gid, sizeof(prefix));
  return be64toh(prefix);
}

}  // namespace

// --- routes

Status Engine::Impl::AddPeer(const std::string& host, LinkId link) {
  if (!peers.emplace(GidPrefix(host), link).second)
    return AlreadyExists("peer " + host + " is named twice, or its name's hash is another peer's");
  return {};
}

// kNoLink: the address of a host that is attached here, or of nobody known.
LinkId Engine::Impl::RouteTo(const GidBytes& gid) const {
  if (!traffic.attached()) return kNoLink;
  if (clients.AnyHost([&gid](const Host& host) { return host.gid == gid; })) return kNoLink;
  const auto it = peers.find(LoadPrefix(gid.data()));
  return it != peers.end() ? it->second : kNoLink;
}

Status Engine::Impl::CheckRoute(const ModifyQpArgs& args) const {
  const uint64_t prefix = LoadPrefix(args.remote_gid);
  if (!traffic.attached() || peers.contains(prefix)) return {};
  if (clients.AnyHost([prefix](const Host& host) { return LoadPrefix(host.gid.data()) == prefix; }))
    return {};
  std::ostringstream gid;
  for (int i = 0; i < 16; ++i)
    gid << std::hex << args.remote_gid[i] / 16 << args.remote_gid[i] % 16
        << (i % 2 == 1 && i < 15 ? ":" : "");
  return Unavailable(Text("modify QP ", args.qpn, ": no route to GID ", gid.str(),
                          ": its host is not attached to this daemon and no --peer names it; start "
                          "the daemon with --peer HOST=ADDRESS:PORT for each host of the group"));
}

void Engine::Impl::StartRemote(Qp& qp, LinkId link) {
  qp.remote = std::make_unique<Remote>();
  qp.remote->link = link;
  qp.deferred = true;
}

// --- what arrives

// Up to `budget` events, and packets to send for as many queue pairs; of at most a turn's bytes
// each way. Returns how many.
size_t Engine::Impl::PollLinks(size_t budget) {
  traffic.BeginTurn();
  size_t done = link_work.holding() == 0 ? 0 : remote_responder.ServeHeld(budget);
  LinkEvent event;
  while (done < budget && traffic.MayReceive() && traffic.port()->Receive(&event)) {
    ++done;
    switch (event.kind) {
      case LinkEvent::Kind::kPacket:
        traffic.CountReceived(event.packet.size());
        HandlePacket(event.link, event.packet);
        break;
      case LinkEvent::Kind::kUp:
        remote_requester.HandleLinkUp(event.link);
        break;
      case LinkEvent::Kind::kRoom:
        remote_requester.HandleRoom(event.link);
        break;
    }
  }
  if (link_work.AnyAck()) remote_responder.SendAcks();
  done += remote_requester.PumpSome(budget);
  if (link_work.AnyWatched() && remote_requester.CheckTimers()) ++done;
  return done;
}

// A packet that is no packet was made by a peer that is none: dropped; the port has logged it, or
// closed the link.
void Engine::Impl::HandlePacket(LinkId from, std::span<const std::byte> bytes) {
  try {
    if (const Result<Packet> packet = ParsePacket(bytes); packet.ok()) Dispatch(from, *packet);
  } catch (const std::bad_alloc&) {  // it has changed nothing: as if it was lost on its way
  }
}

void Engine::Impl::Dispatch(LinkId from, const Packet& packet) {
  switch (packet.type) {
    case PacketType::kConnect:
      return remote_responder.HandleConnect(from, packet);
    case PacketType::kAccept:
    case PacketType::kRefuse:
      return remote_requester.HandleSession(from, packet);
    case PacketType::kSend:
    case PacketType::kWrite:
    case PacketType::kRead:
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
      return remote_responder.HandleRequest(from, packet);
    case PacketType::kAck:
    case PacketType::kReadResponse:
    case PacketType::kAtomicResponse:
    case PacketType::kNak:
    case PacketType::kRnrNak:
      return remote_requester.HandleAnswer(from, packet);
    case PacketType::kServiceRequest:
      return HandleServiceRequest(from, packet);
    case PacketType::kServiceReply:
      return HandleServiceReply(from, packet);
    case PacketType::kServiceRelease:
      return HandleServiceRelease(packet);
  }
}

}  // namespace hyperloop::softrnic
