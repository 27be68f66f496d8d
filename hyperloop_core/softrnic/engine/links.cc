// Queue pairs whose peer is in another engine: routes, sessions, what arrives, and timeouts.
//
// A session ties one life of the requester (its nonce, drawn when it first has something to send)
// to one life of the responder (the session number, drawn when it grants one). Requests of an
// earlier life of either carry another number and are refused, however late they arrive.
#include <sys/random.h>

#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kLeastLinkTryNs = 500'000'000;
constexpr uint64_t kTimerStepNs = 1'000'000;

uint64_t LoadPrefix(const uint8_t* gid) {
  uint64_t prefix;
  std::memcpy(&prefix, gid, sizeof(prefix));
  return be64toh(prefix);
}

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (number == 0)
    if (getrandom(&number, sizeof(number), 0) != sizeof(number)) number = 0;
  return number;
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
  if (port == nullptr) return kNoLink;
  if (clients.AnyHost([&gid](const Host& host) { return host.gid == gid; })) return kNoLink;
  const auto it = peers.find(LoadPrefix(gid.data()));
  return it != peers.end() ? it->second : kNoLink;
}

Status Engine::Impl::CheckRoute(const ModifyQpArgs& args) const {
  const uint64_t prefix = LoadPrefix(args.remote_gid);
  if (port == nullptr || peers.contains(prefix)) return {};
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
  turn_sent = turn_received = 0;
  size_t done = link_work.holding() == 0 ? 0 : ServeHeld(budget);
  LinkEvent event;
  while (done < budget && turn_received < kPacketBytes && port->Receive(&event)) {
    ++done;
    switch (event.kind) {
      case LinkEvent::Kind::kPacket:
        turn_received += TurnCost(event.packet.size());
        HandlePacket(event.link, event.packet);
        break;
      case LinkEvent::Kind::kUp:
        HandleLinkUp(event.link);
        break;
      case LinkEvent::Kind::kRoom:
        HandleRoom(event.link);
        break;
    }
  }
  if (link_work.AnyAck()) SendAcks();
  for (size_t n = std::min(link_work.pumps(), budget); n != 0 && turn_sent < kPacketBytes;
       --n, ++done) {
    Qp* const qp = qps.Find(link_work.NextPump());
    if (qp == nullptr || qp->remote == nullptr) continue;
    qp->remote->pumping = false;
    clients.RunFor(*qp, [&] { Pump(*qp); });
  }
  if (link_work.AnyWatched() && CheckTimers()) ++done;
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
      return HandleConnect(from, packet);
    case PacketType::kAccept:
    case PacketType::kRefuse:
      return HandleSession(from, packet);
    case PacketType::kSend:
    case PacketType::kWrite:
    case PacketType::kRead:
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
      return HandleRequest(from, packet);
    case PacketType::kAck:
    case PacketType::kReadResponse:
    case PacketType::kAtomicResponse:
    case PacketType::kNak:
    case PacketType::kRnrNak:
      return HandleAnswer(from, packet);
    case PacketType::kServiceRequest:
      return HandleServiceRequest(from, packet);
    case PacketType::kServiceReply:
      return HandleServiceReply(from, packet);
    case PacketType::kServiceRelease:
      return HandleServiceRelease(packet);
  }
}

// What was under way when the link broke may be lost: everything without an acknowledgement goes
// again. The responder runs none of it twice.
void Engine::Impl::HandleLinkUp(LinkId link) {
  link_work.ForgetWaiting(link);
  qps.ForEach([&](Qp& qp) {
    if (qp.remote == nullptr || qp.remote->link != link) return;
    qp.remote->waiting = false;
    clients.RunFor(qp, [&] {
      if (qp.remote->phase == Remote::Phase::kConnecting) SendConnect(qp);
      if (qp.remote->phase != Remote::Phase::kOpen) return;
      qp.remote->next_sent = 0;
      link_work.AddPump(qp);
    });
  });
}

void Engine::Impl::HandleRoom(LinkId link) {
  for (const uint32_t qpn : link_work.TakeWaiting(link)) {
    Qp* const qp = qps.Find(qpn);
    if (qp == nullptr || qp->remote == nullptr) continue;
    qp->remote->waiting = false;
    clients.RunFor(*qp, [&] {
      qp->remote->phase == Remote::Phase::kConnecting ? SendConnect(*qp) : link_work.AddPump(*qp);
    });
  }
}

// False: the link is down or full; HandleLinkUp or HandleRoom comes back.
bool Engine::Impl::LinkTakes(Qp& qp) {
  if (port->Ready(qp.remote->link)) return true;
  link_work.AddWaiting(qp);
  return false;
}

// --- sessions

void Engine::Impl::SendConnect(Qp& qp) {
  Remote& r = *qp.remote;
  if (r.phase == Remote::Phase::kIdle) {
    r.phase = Remote::Phase::kConnecting;
    r.nonce = RandomNumber();
    r.progress_ns = clock.Now();
    link_work.Watch(qp);
  }
  if (!LinkTakes(qp)) return;
  std::array<std::byte, 32> gids;
  std::memcpy(gids.data(), qp.remote_gid.data(), 16);
  std::memcpy(gids.data() + 16, qp.host->gid.data(), 16);
  port->Send(r.link, std::make_shared<const std::vector<std::byte>>(
                         EncodePacket({.type = PacketType::kConnect,
                                       .dest_qpn = qp.remote_qpn,
                                       .source_qpn = qp.qpn,
                                       .session = r.nonce,
                                       .payload = gids})));
}

void Engine::Impl::HandleConnect(LinkId from, const Packet& p) {
  Qp* const qp = qps.Find(p.dest_qpn);
  // One that is not connected yet is silent, as it is to a peer in its own engine: the requester
  // asks again.
  if (qp != nullptr && qp->state < rnic::QpState::kReadyToReceive) return;
  const bool ours =
      qp != nullptr && qp->remote != nullptr && qp->connected && qp->remote_qpn == p.source_qpn &&
      (qp->state == rnic::QpState::kReadyToReceive || qp->state == rnic::QpState::kReadyToSend) &&
      std::memcmp(qp->host->gid.data(), p.payload.data(), 16) == 0 &&
      std::memcmp(qp->remote_gid.data(), p.payload.data() + 16, 16) == 0;
  Packet reply{.type = PacketType::kRefuse,
               .dest_qpn = p.source_qpn,
               .source_qpn = p.dest_qpn,
               .session = p.session};
  if (ours) {
    Remote& r = *qp->remote;
    // Once requests ran, another life of the requester needs another life of this end, too.
    if (r.granted_nonce != p.session && !r.began)
      r.granted_nonce = p.session, r.granted = RandomNumber();
    if (r.granted_nonce == p.session) reply.type = PacketType::kAccept, reply.addr = r.granted;
  }
  if (reply.source_qpn == 0 || reply.dest_qpn == 0) return;
  port->Send(from, std::make_shared<const std::vector<std::byte>>(EncodePacket(reply)));
}

void Engine::Impl::HandleSession(LinkId from, const Packet& p) {
  Qp* const qp = qps.Find(p.dest_qpn);
  if (qp == nullptr || qp->remote == nullptr || qp->remote_qpn != p.source_qpn) return;
  Remote& r = *qp->remote;
  if (r.link != from || r.phase != Remote::Phase::kConnecting || r.nonce != p.session) return;
  if (p.type == PacketType::kRefuse)
    return FailSent(*qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  r.phase = Remote::Phase::kOpen;
  r.session = p.addr;
  r.progress_ns = clock.Now();
  clients.RunFor(*qp, [&] { link_work.AddPump(*qp); });
}

// --- timeouts

// True if a timer ended.
bool Engine::Impl::CheckTimers() {
  const uint64_t now = clock.Now();
  if (now - timers_ns < kTimerStepNs) return false;
  timers_ns = now;
  bool any = false;
  link_work.ForWatched([&](uint32_t qpn) {
    Qp* const qp = qps.Find(qpn);
    Remote* const r = qp != nullptr ? qp->remote.get() : nullptr;
    const bool waits =
        r != nullptr && r->listed &&
        (r->phase == Remote::Phase::kConnecting ||
         (r->phase == Remote::Phase::kOpen &&
          (!r->sent.empty() || (r->waiting && Transit::FirstUnanswered(*qp) != nullptr))));
    if (waits) {
      clients.RunFor(*qp, [&] { any |= TimerDue(*qp, now); });
    } else if (r != nullptr) {
      r->listed = false;
    }
    return waits;
  });
  return any;
}

// A request without a sign of life, be it on its way or waiting for the link, is sent again each
// `ack_timeout`, and fails after `link_timeout`; one that found no receive waits as long as the
// peer said.
bool Engine::Impl::TimerDue(Qp& qp, uint64_t now) {
  Remote& r = *qp.remote;
  if (r.rnr_until_ns != 0) {
    if (now < r.rnr_until_ns) return false;
    r.rnr_until_ns = 0;
    r.progress_ns = now;
    link_work.AddPump(qp);
    return true;
  }
  if (qp.ack_timeout_ns == 0 && qp.link_timeout_ns == 0) return false;
  // TCP mends a lost packet in some 200 ms: to ask again before that is no use.
  const uint64_t try_ns = std::max(qp.ack_timeout_ns, kLeastLinkTryNs);
  const uint64_t limit_ns =
      qp.link_timeout_ns != 0 ? qp.link_timeout_ns : (qp.retry_count + 1) * try_ns;
  const bool over = now - r.progress_ns >= limit_ns;
  if (!over && now - std::max(r.progress_ns, r.again_ns) < try_ns) return false;
  r.again_ns = now;
  if (over) {
    FailSent(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  } else if (r.phase == Remote::Phase::kConnecting) {
    SendConnect(qp);
  } else {
    r.next_sent = 0;
    link_work.AddPump(qp);
  }
  return true;
}

}  // namespace hyperloop::softrnic
