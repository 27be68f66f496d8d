// The life of a queue pair: creation, states, error, services, destruction.
#include <algorithm>

#include "rnic/checks.h"
#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/rings.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "softrnic/engine/text.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {

using rnic::QpState;

namespace {

constexpr uint32_t kSnapshots = 64;  // WQEBBs, where the prefetch depth allows so few
constexpr uint32_t kMaxServicesPerHost = 64;
// Of the kMaxQpsPerContext that a client's services have together.
constexpr uint32_t kMaxRespondersPerClient = 128;
constexpr uint32_t kMaxLogRing = 15;  // indexes have 16 bits and half range
constexpr uint32_t kMinLogStride = 4;
constexpr uint32_t kRemoteAccess = rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

// The engine's address of a ring of `bytes` at client address `addr`; null if not inside the umem
// or badly aligned.
std::byte* RingAt(const Umem& umem, uint64_t addr, uint64_t bytes, uint64_t align) {
  if ((addr & (align - 1)) != 0 || addr < umem.addr) return nullptr;
  const uint64_t offset = addr - umem.addr;
  if (offset > umem.length || bytes > umem.length - offset) return nullptr;
  return umem.base + offset;
}

bool ValidName(const char (&name)[kMaxName], std::string* out) {
  const char* const end = std::find(std::begin(name), std::end(name), '\0');
  if (end == std::begin(name) || end == std::end(name)) return false;
  out->assign(name, end);
  return std::all_of(out->begin(), out->end(), [](unsigned char ch) {
    return std::isalnum(ch) != 0 || ch == '.' || ch == '_' || ch == '-';
  });
}

const char* StateName(QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "ERROR"};
  return kNames[static_cast<int>(state)];
}

}  // namespace

Status Engine::Impl::CreateQp(Context& c, const CreateQpArgs& a, CreateQpReply* reply) {
  const auto pd = c.pds.find(a.pdn);
  if (pd == c.pds.end()) return NotFound(Text("create QP: no protection domain ", a.pdn));
  const auto umem = c.umems.find(a.umem);
  if (umem == c.umems.end()) return NotFound(Text("create QP: no registered memory ", a.umem));
  if (umem->second->length > kMaxRingUmemBytes)
    return InvalidArgument(Text("create QP: its rings are in registered memory of ",
                                umem->second->length, " B; at most ", kMaxRingUmemBytes));
  Cq* const send_cq = cqs.Find(a.send_cqn);
  Cq* const recv_cq = cqs.Find(a.recv_cqn);
  if (send_cq == nullptr || send_cq->context != &c || recv_cq == nullptr || recv_cq->context != &c)
    return NotFound(
        Text("create QP: no completion queue ", a.send_cqn, " or ", a.recv_cqn, " of this client"));
  if (a.log_sq_wqebbs > kMaxLogRing)
    return InvalidArgument(
        Text("create QP: send ring of 2^", a.log_sq_wqebbs, " blocks; at most 2^", kMaxLogRing));
  if (a.has_rq > 1 || (a.flags & ~uint32_t{kQpMaster | kQpSlaveSend | kQpSlaveReceive}) != 0)
    return InvalidArgument(Text("create QP: unknown flags ", a.flags, " or has_rq ", a.has_rq));
  if (a.has_rq != 0 && (a.log_rq_wqes > kMaxLogRing || a.log_rq_stride < kMinLogStride ||
                        a.log_rq_stride > kMaxLogStride))
    return InvalidArgument(Text("create QP: receive ring of 2^", a.log_rq_wqes, " entries of 2^",
                                a.log_rq_stride, " B; at most 2^", kMaxLogRing,
                                " of 16 to 1024 B"));
  std::byte* const sq =
      RingAt(*umem->second, a.sq_addr, uint64_t{rnic::kWqebbBytes} << a.log_sq_wqebbs, 64);
  std::byte* const dbrec = RingAt(*umem->second, a.dbrec_addr, rnic::kDoorbellRecordBytes, 8);
  std::byte* const rq =
      a.has_rq != 0
          ? RingAt(*umem->second, a.rq_addr, (uint64_t{1} << a.log_rq_wqes) << a.log_rq_stride, 16)
          : nullptr;
  if (sq == nullptr || dbrec == nullptr || (a.has_rq != 0 && rq == nullptr))
    return InvalidArgument(
        "create QP: a ring or the doorbell record is outside the registered memory or not aligned "
        "(send ring 64 B, receive ring 16 B, record 8 B)");
  if (c.account->qps >= options.limits.queue_pairs)
    return NoSpace(Text("create QP: this client has ", options.limits.queue_pairs,
                        " queue pairs, the most (--client-queue-pairs of the RNIC daemon); destroy "
                        "some"));
  const uint32_t doorbell = c.FreeRegister();
  if (doorbell == kMaxQpsPerContext)
    return NoSpace(Text("create QP: this client has ", kMaxQpsPerContext,
                        " queue pairs and completion queues with events, the most; destroy some"));

  HL_RETURN_IF_ERROR(ReserveRings(*umem->second, options.limits));
  auto owned = std::make_unique<Qp>();
  Qp& qp = *owned;
  if (options.fetch != EngineOptions::Fetch::kLate || options.prefetch_depth != 0) {
    qp.snapshots = true;
    const uint32_t ring = 1u << a.log_sq_wqebbs;
    const bool few = options.fetch == EngineOptions::Fetch::kLate &&
                     options.prefetch_depth + rnic::kMaxWqeBytes / rnic::kWqebbBytes <= kSnapshots;
    qp.fetch_mask = (few ? std::min(ring, kSnapshots) : ring) - 1;
    qp.snapshot.resize((size_t{qp.fetch_mask} + 1) * rnic::kWqebbBytes);
  }
  const uint32_t qpn = qps.Insert(std::move(owned));
  if (qpn == 0) return NoSpace("create QP: the device has no queue pair number left; destroy some");
  qp.qpn = qpn;
  qp.args = a;
  qp.deferred = deferred;
  Enlist(qp, c);
  qp.host = c.host;
  qp.pd = pd->second.get();
  qp.umem = umem->second.get();
  qp.send_cq = send_cq;
  qp.recv_cq = recv_cq;
  qp.flags = a.flags;
  qp.sq = qp.fetch = sq;
  qp.sq_mask = (1u << a.log_sq_wqebbs) - 1;
  if (qp.snapshots) {
    qp.fetch = qp.snapshot.data();
  } else {
    qp.fetch_mask = qp.sq_mask;
  }
  qp.dbrec = dbrec;
  qp.rq = rq;
  qp.has_rq = a.has_rq != 0;
  qp.rq_mask = qp.has_rq ? (1u << a.log_rq_wqes) - 1 : 0;
  qp.rq_log_stride = a.log_rq_stride;
  qp.max_read_atomic = std::max(1u, a.max_read_atomic);
  StartCounters(qp);
  qp.doorbell_index = doorbell;
  c.doorbells[doorbell] = &qp;
  ++qp.pd->users, ++qp.umem->users, ++send_cq->users, ++recv_cq->users, ++c.account->qps;
  c.UseRegister(doorbell);
  MarkRings(qp, true);
  reply->qpn = qpn;
  reply->doorbell_index = qp.doorbell_index;
  return {};
}

void Engine::Impl::Enlist(Qp& qp, Context& c) {
  qp.context = &c;
  qp.account = c.account;
  qp.next_of_context = c.first_qp;
  if (c.first_qp != nullptr) c.first_qp->before_of_context = &qp;
  c.first_qp = &qp;
}

void Engine::Impl::Delist(const Qp& qp) {
  (qp.before_of_context != nullptr ? qp.before_of_context->next_of_context : qp.context->first_qp) =
      qp.next_of_context;
  if (qp.next_of_context != nullptr) qp.next_of_context->before_of_context = qp.before_of_context;
}

void Engine::Impl::StartCounters(Qp& qp) const {
  qp.consumer = qp.producer = qp.fetched = options.first_wqe;
  qp.rq_consumer = qp.rq_producer = qp.rq_enabled = options.first_receive;
  qp.rq_flush_left = 0;
}

// Empties both queues and forgets what was under way, without completions. The client's memory is
// left alone.
void Engine::Impl::ResetQueues(Qp& qp) {
  ready.Remove(qp);
  Waiters::Remove(qp);
  qp.stall = Stall::kNone;
  qp.resume = false;
  qp.part.reset();
  StartCounters(qp);
  qp.retry = {};
  qp.outstanding_reads = 0;
  qp.inflight.clear();
  qp.failed = false;
  if (qp.remote != nullptr) link_work.Stop(qp);
  qp.remote.reset();
  qp.deferred = deferred;
  durability.Forget(qp);
  if (options.persistence != nullptr) options.persistence->Gone(qp.qpn);
  if (qp.context->uar != nullptr && !qp.responder_only)
    __atomic_store_n(&qp.context->uar->registers[qp.doorbell_index], 0, __ATOMIC_RELAXED);
}

Status Engine::Impl::ModifyQp(Context& c, const ModifyQpArgs& a) {
  Qp* const qp = qps.Find(a.qpn);
  if (qp == nullptr || qp->context != &c || qp->responder_only)
    return NotFound(Text("modify QP: no queue pair ", a.qpn, " of this client"));
  if (a.state > static_cast<uint32_t>(QpState::kError))
    return InvalidArgument(Text("modify QP: unknown state ", a.state));
  const auto to = static_cast<QpState>(a.state);
  const auto refuse = [&] {
    return InvalidArgument(Text("modify QP ", a.qpn, ": ", StateName(qp->state), " to ",
                                StateName(to),
                                " is no transition; the order is RESET, INIT, RTR, RTS"));
  };
  switch (to) {
    case QpState::kReset:
      qps.Disconnect(*qp);
      ResetQueues(*qp);
      qp->connected = false;
      qp->orphaned = false;
      qp->access = 0;
      break;
    case QpState::kInit:
      if (qp->state != QpState::kReset && qp->state != QpState::kInit) return refuse();
      if ((a.access & ~(kRemoteAccess | rnic::kLocalWrite)) != 0)
        return InvalidArgument(Text("modify QP: unknown access rights ", a.access));
      qp->access = a.access & kRemoteAccess;
      break;
    case QpState::kReadyToReceive:
      if (qp->state != QpState::kInit) return refuse();
      HL_RETURN_IF_ERROR(CheckRoute(a));
      if (a.rnr_timer_us < 1 || a.rnr_timer_us > rnic::kMaxRnrTimer.count())
        return InvalidArgument(Text("modify QP: RNR timer of ", a.rnr_timer_us, " us; 1 to ",
                                    rnic::kMaxRnrTimer.count()));
      qp->rnr_timer_us = a.rnr_timer_us;
      qps.Disconnect(*qp);
      std::copy(std::begin(a.remote_gid), std::end(a.remote_gid), qp->remote_gid.begin());
      qp->remote_qpn = a.remote_qpn & rnic::kObjectMask;
      qp->connected = true;
      qp->requests_before = RequestsRun(*qp);
      if (const LinkId link = RouteTo(qp->remote_gid); link != kNoLink) StartRemote(*qp, link);
      break;
    case QpState::kReadyToSend:
      if (qp->state != QpState::kReadyToReceive) return refuse();
      if (std::max(a.ack_timeout_ms, a.link_timeout_ms) > rnic::kMaxSilence.count() ||
          std::max(a.retry_count, a.rnr_retry) > rnic::kMaxRetries)
        return InvalidArgument(Text("modify QP: timeouts of ", a.ack_timeout_ms, " and ",
                                    a.link_timeout_ms, " ms, retries ", a.retry_count, " and ",
                                    a.rnr_retry, "; at most ", rnic::kMaxSilence.count(),
                                    " ms and ", rnic::kMaxRetries));
      qp->ack_timeout_ns = uint64_t{a.ack_timeout_ms} * 1'000'000;
      qp->link_timeout_ns = uint64_t{a.link_timeout_ms} * 1'000'000;
      qp->retry_count = static_cast<uint8_t>(a.retry_count);
      qp->rnr_retry = static_cast<uint8_t>(a.rnr_retry);
      break;
    case QpState::kError:
      if (qp->state == QpState::kReset) return refuse();
      errors.Enter(*qp);
      return {};
  }
  qp->state = to;
  if (to == QpState::kReadyToSend && qp->consumer != qp->producer) ready.Add(*qp);
  return {};
}

void Engine::Impl::Destroy(Qp& qp) {
  qps.Disconnect(qp);
  ResetQueues(qp);
  looks.Remove(qp);
  if (Qp* const answerer = qp.service_qpn != 0 ? qps.Find(qp.service_qpn) : nullptr)
    Destroy(*answerer);
  ReleaseService(qp);
#define HL_ADD(name) qp.host->retired.name += qp.count.name;
  HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
  --qp.pd->users;
  if (qp.responder_only) {
    if (Qp* const client = qps.Find(qp.remote_qpn);
        client != nullptr && client->service_qpn == qp.qpn)
      client->service_qpn = 0;
    --qp.context->responders;
  } else {
    --qp.umem->users, --qp.send_cq->users, --qp.recv_cq->users, --qp.account->qps;
    qp.context->doorbells[qp.doorbell_index] = nullptr;
    MarkRings(qp, false);
  }
  Delist(qp);
  qps.Erase(qp.qpn);
}

Status Engine::Impl::DestroyQp(Context& c, uint32_t qpn) {
  Qp* const qp = qps.Find(qpn);
  if (qp == nullptr || qp->context != &c || qp->responder_only)
    return NotFound(Text("destroy QP: no queue pair ", qpn, " of this client"));
  Destroy(*qp);
  return {};
}

// --- services

Status Engine::Impl::Publish(Context& c, const PublishArgs& a) {
  std::string name;
  if (!ValidName(a.service, &name))
    return InvalidArgument("publish: a service name is 1 to 63 of [A-Za-z0-9._-]");
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

// A queue pair in the publisher's protection domain that only answers READs of `client_qpn`.
Result<Qp*> Engine::Impl::MakeResponder(Service& service, Host& host, const GidBytes& gid,
                                        uint32_t client_qpn, const Account* asker) {
  if (service.context->responders >= kMaxQpsPerContext)
    return NoSpace(Text("connect service: ", "a service of ", host.name, " has ", kMaxQpsPerContext,
                        " connections, the most"));
  uint32_t of_asker = 0;
  ForEachQp(*service.context,
            [&](const Qp& qp) { of_asker += qp.responder_only && qp.asker == asker; });
  if (asker != nullptr && of_asker >= kMaxRespondersPerClient)
    return NoSpace(Text("connect service: this client has ", of_asker,
                        " connections to services "
                        "of one client of ",
                        host.name, ", the most; destroy some"));
  auto owned = std::make_unique<Qp>();
  Qp& qp = *owned;
  const uint32_t qpn = qps.Insert(std::move(owned));
  if (qpn == 0) return NoSpace("connect service: the device has no queue pair number left");
  qp.qpn = qpn;
  Enlist(qp, *service.context);
  qp.host = &host;
  qp.pd = service.pd;
  ++qp.pd->users, ++service.context->responders;
  qp.responder_only = true;
  qp.asker = asker;
  qp.state = QpState::kReadyToReceive;
  qp.access = rnic::kRemoteRead;
  qp.remote_gid = gid;
  qp.remote_qpn = client_qpn;
  qp.connected = true;
  return &qp;
}

// Makes a queue pair in the publisher's protection domain that only answers READs, connected to the
// caller's.
Status Engine::Impl::ConnectService(Context& c, const ConnectServiceArgs& a,
                                    ConnectServiceReply* reply) {
  std::string host_name, name;
  if (!ValidName(a.host, &host_name) || !ValidName(a.service, &name))
    return InvalidArgument("connect service: host and service names are 1 to 63 of [A-Za-z0-9._-]");
  Qp* const client = qps.Find(a.qpn);
  if (client == nullptr || client->context != &c || client->responder_only)
    return NotFound(Text("connect service: no queue pair ", a.qpn, " of this client"));
  if (client->state != QpState::kReset)
    return InvalidArgument(Text("connect service: queue pair ", a.qpn, " is in ",
                                StateName(client->state), "; it must be fresh (RESET)"));
  Host* const host = clients.FindHost(host_name);
  if (host == nullptr && traffic.attached()) {
    const auto peer = peers.find(GidPrefix(host_name));
    if (peer != peers.end()) return AskService(c, *client, peer->second, a, reply);
  }
  if (host == nullptr)
    return NotFound(Text("connect service: no host ", host_name, " on this device"));
  const auto it = host->services.find(name);
  if (it == host->services.end())
    return NotFound(Text("connect service: host ", host_name, " offers no ", name,
                         "; is its process running?"));
  Service& service = it->second;
  if (Qp* const old = client->service_qpn != 0 ? qps.Find(client->service_qpn) : nullptr)
    Destroy(*old);
  client->service_qpn = 0;
  HL_ASSIGN_OR_RETURN(Qp* const answerer,
                      MakeResponder(service, *host, c.host->gid, client->qpn, c.account));
  Qp& qp = *answerer;
  client->service_qpn = qp.qpn;
  std::copy(qp.host->gid.begin(), qp.host->gid.end(), reply->gid);
  reply->remote_qpn = qp.qpn;
  reply->private_length = static_cast<uint32_t>(service.private_data.size());
  std::copy(service.private_data.begin(), service.private_data.end(), reply->private_data);
  return {};
}

}  // namespace hyperloop::softrnic
