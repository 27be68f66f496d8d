// The connection agent between daemons: a service of a host on another machine is asked for by
// packet. The client's command says "busy" until the answer is there and is then given it; asking
// again sends the request again now and then, for links lose what is under way when they break.
#include <sys/random.h>

#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {

using rnic::QpState;

namespace {

constexpr uint64_t kAskAgainNs = 300'000'000;

PacketBytes Share(const Packet& p) {
  return std::make_shared<const std::vector<std::byte>>(EncodePacket(p));
}

// A name in a request; empty: malformed.
std::string NameAt(const std::byte* at) {
  const auto* const begin = reinterpret_cast<const char*>(at);
  const auto* const end = std::find(begin, begin + kServiceNameBytes, '\0');
  return end == begin + kServiceNameBytes ? std::string() : std::string(begin, end);
}

}  // namespace

// kBusy: asked, no answer yet.
Status Engine::Impl::AskService(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
                                ConnectServiceReply* reply) {
  const std::string host(a.host, strnlen(a.host, sizeof a.host));
  const std::string service(a.service, strnlen(a.service, sizeof a.service));
  if (client.ask == nullptr || client.ask->host != host || client.ask->service != service) {
    ReleaseService(client);
    client.ask = std::make_unique<ServiceAsk>();
    client.ask->host = host;
    client.ask->service = service;
    client.ask->link = link;
    if (getrandom(&client.ask->nonce, sizeof client.ask->nonce, 0) != sizeof client.ask->nonce ||
        client.ask->nonce == 0)
      client.ask->nonce = 1 + dice.Throw() / 2;
  }
  ServiceAsk& ask = *client.ask;
  if (ask.answered) {
    ask.answered = false;
    ask.host.clear();  // whoever asks once more is given another one
    if (ask.code != Code::kOk) {
      const Status status(ask.code, std::string(reinterpret_cast<const char*>(ask.answer.data()),
                                                ask.answer.size()));
      client.ask.reset();
      return status;
    }
    std::memcpy(reply->gid, ask.answer.data(), 16);
    reply->remote_qpn = ask.responder;
    reply->private_length = static_cast<uint32_t>(ask.answer.size() - 16);
    std::memcpy(reply->private_data, ask.answer.data() + 16, ask.answer.size() - 16);
    return {};
  }
  const uint64_t now = clock.Now();
  if (traffic.Ready(link) && (ask.sent_ns == 0 || now - ask.sent_ns >= kAskAgainNs)) {
    ask.sent_ns = std::max<uint64_t>(now, 1);
    std::array<std::byte, 16 + 2 * kServiceNameBytes> payload{};
    static_assert(kServiceNameBytes == kMaxName);
    std::memcpy(payload.data(), c.host->gid.data(), 16);
    std::memcpy(payload.data() + 16, a.host, kMaxName);
    std::memcpy(payload.data() + 16 + kMaxName, a.service, kMaxName);
    traffic.Send(link, Share({.type = PacketType::kServiceRequest,
                              .source_qpn = client.qpn,
                              .session = ask.nonce,
                              .payload = payload}));
    traffic.port()->Flush();
  }
  return Busy(Text("connect service: waiting for the daemon of host ", host,
                   traffic.Ready(link) ? "" : ", to which the link is down"));
}

void Engine::Impl::HandleServiceReply(LinkId from, const Packet& p) {
  Qp* const qp = qps.Find(p.dest_qpn);
  if (qp == nullptr || qp->ask == nullptr || qp->ask->link != from || qp->ask->nonce != p.session ||
      qp->ask->answered)
    return;
  ServiceAsk& ask = *qp->ask;
  const auto code = static_cast<Code>(p.syndrome);
  if (p.syndrome > static_cast<uint8_t>(Code::kInternal) ||
      (code == Code::kOk && (p.payload.size() < 16 || p.source_qpn == 0)))
    return;
  ask.answer.assign(p.payload.begin(), p.payload.end());
  ask.answered = true;
  ask.code = code;
  ask.responder = p.source_qpn;
}

// The client's queue pair goes, or asks for another service: the other end may forget this one. It
// need not hear of it.
void Engine::Impl::ReleaseService(Qp& qp) {
  const std::unique_ptr<ServiceAsk> ask = std::move(qp.ask);
  if (ask == nullptr || ask->responder == 0 || !traffic.Ready(ask->link)) return;
  try {
    traffic.Send(ask->link, Share({.type = PacketType::kServiceRelease,
                                   .dest_qpn = ask->responder,
                                   .source_qpn = qp.qpn,
                                   .session = ask->nonce,
                                   .payload = std::as_bytes(std::span(qp.host->gid))}));
    traffic.port()->Flush();
  } catch (const std::bad_alloc&) {  // as if it was lost
  }
}

// --- the publisher's end

void Engine::Impl::HandleServiceRequest(LinkId from, const Packet& p) {
  GidBytes gid;
  std::memcpy(gid.data(), p.payload.data(), gid.size());
  const std::string host_name = NameAt(p.payload.data() + 16);
  const std::string name = NameAt(p.payload.data() + 16 + kServiceNameBytes);
  Packet reply{.type = PacketType::kServiceReply, .dest_qpn = p.source_qpn, .session = p.session};
  if (reply.dest_qpn == 0) return;
  const auto refuse = [&](const Status& status) {
    reply.syndrome = static_cast<uint8_t>(status.code());
    const std::string text = status.message().substr(0, kMaxServiceReply);
    reply.payload = std::as_bytes(std::span(text));
    traffic.Send(from, Share(reply));
  };
  Host* const host = clients.FindHost(host_name);
  if (host == nullptr)
    return refuse(NotFound(Text("connect service: no host ", host_name, " on its device")));
  const auto it = host->services.find(name);
  if (it == host->services.end())
    return refuse(NotFound(Text("connect service: host ", host_name, " offers no ", name,
                                "; is its process running?")));
  // The same request again gets the same queue pair; another one of the same client replaces it.
  Qp* answerer = nullptr;
  Qp* oldest = nullptr;
  qps.ForEach([&](Qp& qp) {
    if (!qp.responder_only || qp.remote == nullptr) return;
    if (qp.remote_gid == gid && qp.remote_qpn == p.source_qpn) answerer = &qp;
    if (qp.context == it->second.context && (oldest == nullptr || qp.asked < oldest->asked))
      oldest = &qp;
  });
  if (answerer != nullptr && answerer->ask_nonce != p.session) {
    if (oldest == answerer) oldest = nullptr;
    Destroy(*answerer);
    answerer = nullptr;
  }
  if (answerer == nullptr) {
    // Clients that ended without a word leave theirs behind.
    if (it->second.context->responders >= kMaxQpsPerContext && oldest != nullptr) Destroy(*oldest);
    auto made = MakeResponder(it->second, *host, gid, p.source_qpn, nullptr);
    if (!made.ok()) return refuse(made.status());
    answerer = *made;
    try {
      StartRemote(*answerer, kNoLink);
    } catch (const std::bad_alloc&) {
      Destroy(*answerer);
      throw;
    }
    answerer->ask_nonce = p.session;
    answerer->asked = ++services_asked;
  }
  std::vector<std::byte> payload(16 + it->second.private_data.size());
  std::memcpy(payload.data(), answerer->host->gid.data(), 16);
  if (payload.size() > 16)
    std::memcpy(payload.data() + 16, it->second.private_data.data(), payload.size() - 16);
  reply.source_qpn = answerer->qpn;
  reply.payload = payload;
  traffic.Send(from, Share(reply));
}

void Engine::Impl::HandleServiceRelease(const Packet& p) {
  Qp* const qp = qps.Find(p.dest_qpn);
  if (qp == nullptr || !qp->responder_only || qp->remote == nullptr || qp->ask_nonce != p.session ||
      qp->remote_qpn != p.source_qpn ||
      std::memcmp(qp->remote_gid.data(), p.payload.data(), 16) != 0)
    return;
  Destroy(*qp);
}

}  // namespace hyperloop::softrnic
