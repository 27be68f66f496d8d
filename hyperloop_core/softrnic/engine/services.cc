#include "softrnic/engine/services.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "hyperloop/core/name.h"
#include "rnic/checks.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {

using rnic::QpState;

namespace {

constexpr uint32_t kMaxServicesPerHost = 64;
// How many queue pairs of one client may answer one host of another daemon.
constexpr uint32_t kMaxRespondersPerHost = 32;

// The name at `at` in a request. Empty: it is malformed.
std::string NameAt(const std::byte* at) {
  const auto* const begin = reinterpret_cast<const char*>(at);
  const auto* const end = std::find(begin, begin + kNameBytes, '\0');
  return end == begin + kNameBytes ? std::string() : std::string(begin, end);
}

}  // namespace

Status Services::Publish(Context& c, const PublishArgs& a) {
  std::string name;
  if (!ToName(a.service, &name))
    return InvalidArgument(Text("publish: a service name is ", kNameRule));
  if (a.private_length > kMaxPrivateData)
    return InvalidArgument(Text("publish ", name, ": ", a.private_length,
                                " B of private data; at most ", kMaxPrivateData));
  const auto pd = c.pds.find(a.pdn);
  if (pd == c.pds.end()) return NotFound(Text("publish ", name, ": no protection domain ", a.pdn));
  auto& services = c.host->services;
  const auto it = services.find(name);
  if (it != services.end() && it->second.context != &c)
    return AlreadyExists(Text("publish: host ", c.host->name, " already offers ", name,
                              " by another client; stop that one first"));
  if (it == services.end() && services.size() >= kMaxServicesPerHost)
    return NoSpace(Text("publish ", name, ": host ", c.host->name, " already offers ",
                        kMaxServicesPerHost, " services"));
  if (it != services.end()) --it->second.pd->users;
  ++pd->second->users;
  services[name] = {&c, pd->second.get(), {a.private_data, a.private_data + a.private_length}};
  return {};
}

Status Services::Connect(Context& c, const ConnectServiceArgs& a, ConnectServiceReply* reply) {
  std::string host_name, name;
  if (!ToName(a.host, &host_name) || !ToName(a.service, &name))
    return InvalidArgument(Text("connect service: host and service names are ", kNameRule));
  Qp* const client = qps_.Find(a.qpn);
  if (client == nullptr || client->context != &c || client->service.responder_only)
    return NotFound(Text("connect service: no queue pair ", a.qpn, " of this client"));
  if (client->state != QpState::kReset)
    return InvalidArgument(Text("connect service: queue pair ", a.qpn, " is in ",
                                StateName(client->state), "; it must be fresh (RESET)"));
  Host* const host = clients_.FindHost(host_name);
  if (host == nullptr)
    if (const LinkId link = routes_.ToHost(host_name); link != kNoLink)
      return asks_.Ask(c, *client, link, a, reply);
  if (host == nullptr)
    return NotFound(Text("connect service: no host ", host_name, " on this device",
                         traffic_.attached() ? " nor among its peers. " : "",
                         traffic_.attached() ? Routes::PeerRemedy(host_name) : ""));
  const auto it = host->services.find(name);
  if (it == host->services.end())
    return NotFound(Text("connect service: host ", host_name, " offers no ", name,
                         "; is its process running?"));
  Service& service = it->second;
  if (Qp* const old = client->service.qpn != 0 ? qps_.Find(client->service.qpn) : nullptr)
    life_.Destroy(*old);
  client->service.qpn = 0;
  HL_ASSIGN_OR_RETURN(Qp* const answerer,
                      life_.MakeResponder(service, *host, c.host->gid, client->qpn, c.account));
  Qp& qp = *answerer;
  client->service.qpn = qp.qpn;
  std::copy(qp.host->gid.begin(), qp.host->gid.end(), reply->gid);
  reply->remote_qpn = qp.qpn;
  reply->private_length = static_cast<uint32_t>(service.private_data.size());
  std::copy(service.private_data.begin(), service.private_data.end(), reply->private_data);
  return {};
}

void Services::HandleRequest(LinkId from, const Packet& p) {
  GidBytes gid;
  std::memcpy(gid.data(), p.payload.data(), gid.size());
  const std::string host_name = NameAt(p.payload.data() + 16);
  const std::string name = NameAt(p.payload.data() + 16 + kNameBytes);
  Packet reply{.type = PacketType::kServiceReply, .dest_qpn = p.source_qpn, .session = p.session};
  if (reply.dest_qpn == 0) return;
  const auto refuse = [&](const Status& status) {
    reply.syndrome = static_cast<uint8_t>(status.code());
    const std::string text = status.message().substr(0, kMaxServiceReply);
    reply.payload = std::as_bytes(std::span(text));
    traffic_.Send(from, reply);
  };
  Host* const host = clients_.FindHost(host_name);
  if (host == nullptr)
    return refuse(NotFound(Text("connect service: no host ", host_name, " on its device")));
  const auto it = host->services.find(name);
  if (it == host->services.end())
    return refuse(NotFound(Text("connect service: host ", host_name, " offers no ", name,
                                "; is its process running?")));
  const Result<Qp*> made = AnswererFor(it->second, *host, gid, p);
  if (!made.ok()) return refuse(made.status());
  const Qp* const answerer = *made;
  std::vector<std::byte> payload(16 + it->second.private_data.size());
  std::memcpy(payload.data(), answerer->host->gid.data(), 16);
  if (payload.size() > 16)
    std::memcpy(payload.data() + 16, it->second.private_data.data(), payload.size() - 16);
  reply.source_qpn = answerer->qpn;
  reply.payload = payload;
  traffic_.Send(from, reply);
}

// A repeated request gets the same queue pair. Another request of the same client's queue pair
// replaces it.
Result<Qp*> Services::AnswererFor(Service& service, Host& host, const GidBytes& gid,
                                  const Packet& p) {
  Qp* const same = life_.ResponderFor(gid, p.source_qpn);
  if (same != nullptr && same->service.ask_nonce == p.session) return same;
  if (same != nullptr) life_.Destroy(*same);
  MakeRoom(*service.context, gid);
  HL_ASSIGN_OR_RETURN(Qp* const made,
                      life_.MakeResponder(service, host, gid, p.source_qpn, nullptr));
  try {
    QpLife::StartRemote(*made, kNoLink);
  } catch (const std::bad_alloc&) {
    life_.Destroy(*made);
    throw;
  }
  made->service.ask_nonce = p.session;
  made->service.asked = ++asked_;
  return made;
}

// A client that ended without a release leaves its queue pair behind. So the oldest one makes room:
// the oldest of the asking host if that host has many, otherwise the oldest of all.
void Services::MakeRoom(const Context& c, const GidBytes& gid) {
  if (c.responders < kMaxRespondersPerHost) return;
  Qp* oldest = nullptr;
  Qp* oldest_of_host = nullptr;
  uint32_t of_host = 0;
  const auto older = [](Qp* one, Qp& other) {
    return one == nullptr || other.service.asked < one->service.asked ? &other : one;
  };
  ForEachQp(c, [&](Qp& qp) {
    if (!qp.service.responder_only || qp.peer.remote == nullptr) return;
    oldest = older(oldest, qp);
    if (GidPrefixAt(qp.peer.gid.data()) != GidPrefixAt(gid.data())) return;
    oldest_of_host = older(oldest_of_host, qp);
    ++of_host;
  });
  if (of_host >= kMaxRespondersPerHost) return life_.Destroy(*oldest_of_host);
  if (c.responders >= kMaxQpsPerContext && oldest != nullptr) life_.Destroy(*oldest);
}

void Services::HandleRelease(const Packet& p) {
  Qp* const qp = qps_.Find(p.dest_qpn);
  if (qp == nullptr || !qp->service.responder_only || qp->peer.remote == nullptr ||
      qp->service.ask_nonce != p.session || qp->peer.qpn != p.source_qpn ||
      std::memcmp(qp->peer.gid.data(), p.payload.data(), 16) != 0)
    return;
  life_.Destroy(*qp);
}

}  // namespace hyperloop::softrnic
