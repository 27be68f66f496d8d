#include "softrnic/engine/service_asks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "hyperloop/core/name.h"
#include "softrnic/engine/random_number.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kAskAgainNs = 300'000'000;

}  // namespace

Status ServiceAsks::Ask(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
                        ConnectServiceReply* reply) {
  const std::string host(a.host, strnlen(a.host, sizeof a.host));
  const std::string service(a.service, strnlen(a.service, sizeof a.service));
  std::unique_ptr<ServiceAsk>& kept = client.service.ask;
  if (kept == nullptr || kept->host != host || kept->service != service || kept->link != link) {
    Release(client);
    kept = std::make_unique<ServiceAsk>();
    kept->host = host;
    kept->service = service;
    kept->link = link;
    kept->nonce = RandomNumber();
  }
  ServiceAsk& ask = *kept;
  if (ask.answered) {
    ask.answered = false;
    ask.host.clear();  // the next command asks for another connection
    if (ask.code != Code::kOk) {
      const Status status(
          ask.code,
          Text("host ", c.host->name, " asked ", a.host, ": ",
               Shown({reinterpret_cast<const char*>(ask.answer.data()), ask.answer.size()})));
      kept.reset();
      return status;
    }
    std::memcpy(reply->gid, ask.answer.data(), 16);
    reply->remote_qpn = ask.responder;
    reply->private_length = static_cast<uint32_t>(ask.answer.size() - 16);
    std::memcpy(reply->private_data, ask.answer.data() + 16, ask.answer.size() - 16);
    return {};
  }
  const uint64_t now = clock_.Now();
  if (traffic_.Ready(link) && (ask.sent_ns == 0 || now - ask.sent_ns >= kAskAgainNs)) {
    ask.sent_ns = std::max<uint64_t>(now, 1);
    std::array<std::byte, 16 + 2 * kNameBytes> payload{};
    std::memcpy(payload.data(), c.host->gid.data(), 16);
    std::memcpy(payload.data() + 16, a.host, kNameBytes);
    std::memcpy(payload.data() + 16 + kNameBytes, a.service, kNameBytes);
    traffic_.Send(link, {.type = PacketType::kServiceRequest,
                         .source_qpn = client.qpn,
                         .session = ask.nonce,
                         .payload = payload});
    traffic_.port()->Flush();
  }
  return Busy(Text("connect service: waiting for the daemon of host ", host,
                   traffic_.Ready(link) ? "" : ", to which the link is down"));
}

void ServiceAsks::HandleReply(LinkId from, const Packet& p) {
  Qp* const qp = qps_.Find(p.dest_qpn);
  if (qp == nullptr || qp->service.ask == nullptr || qp->service.ask->link != from ||
      qp->service.ask->nonce != p.session || qp->service.ask->answered)
    return;
  ServiceAsk& ask = *qp->service.ask;
  const auto code = static_cast<Code>(p.syndrome);
  if (p.syndrome > static_cast<uint8_t>(Code::kInternal) ||
      (code == Code::kOk && (p.payload.size() < 16 || p.source_qpn == 0)))
    return;
  ask.answer.assign(p.payload.begin(), p.payload.end());
  ask.answered = true;
  ask.code = code;
  ask.responder = p.source_qpn;
}

void ServiceAsks::Release(Qp& qp) {
  const std::unique_ptr<ServiceAsk> ask = std::move(qp.service.ask);
  if (ask == nullptr || ask->responder == 0 || !traffic_.Ready(ask->link)) return;
  try {
    traffic_.Send(ask->link, {.type = PacketType::kServiceRelease,
                              .dest_qpn = ask->responder,
                              .source_qpn = qp.qpn,
                              .session = ask->nonce,
                              .payload = std::as_bytes(std::span(qp.host->gid))});
    traffic_.port()->Flush();
  } catch (const std::bad_alloc&) {  // the message counts as lost
  }
}

}  // namespace hyperloop::softrnic
