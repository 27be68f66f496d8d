#include "softrnic/engine/qp_life.h"

#include <algorithm>
#include <memory>

#include "rnic/checks.h"
#include "softrnic/engine/rings.h"
#include "softrnic/engine/testing/persistence_model.h"
#include "softrnic/engine/text.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {

using rnic::QpState;

namespace {

constexpr uint32_t kSnapshots = 64;  // WQEBBs, if the fetch mode and prefetch depth need no more
// The most connections that one client has to the services of another, which together have at most
// kMaxQpsPerContext connections.
constexpr uint32_t kMaxRespondersPerClient = 128;
constexpr uint32_t kMaxLogRing = 15;  // indexes have 16 bits, and half of their range is behind
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

}  // namespace

Status QpLife::CreateQp(Context& c, const CreateQpArgs& a, CreateQpReply* reply) {
  const auto pd = c.pds.find(a.pdn);
  if (pd == c.pds.end()) return NotFound(Concat("create QP: no protection domain ", a.pdn));
  const auto umem = c.umems.find(a.umem);
  if (umem == c.umems.end()) return NotFound(Concat("create QP: no registered memory ", a.umem));
  if (umem->second->length > kMaxRingUmemBytes)
    return InvalidArgument(Concat("create QP: its rings are in registered memory of ",
                                  umem->second->length, " B; at most ", kMaxRingUmemBytes));
  Cq* const send_cq = cqs_.Find(a.send_cqn);
  Cq* const recv_cq = cqs_.Find(a.recv_cqn);
  if (send_cq == nullptr || send_cq->context != &c || recv_cq == nullptr || recv_cq->context != &c)
    return NotFound(Concat("create QP: no completion queue ", a.send_cqn, " or ", a.recv_cqn,
                           " of this client"));
  if (a.log_sq_wqebbs > kMaxLogRing)
    return InvalidArgument(
        Concat("create QP: send ring of 2^", a.log_sq_wqebbs, " blocks; at most 2^", kMaxLogRing));
  if (a.has_rq > 1 || (a.flags & ~uint32_t{kQpMaster | kQpSlaveSend | kQpSlaveReceive}) != 0)
    return InvalidArgument(Concat("create QP: unknown flags ", a.flags, " or has_rq ", a.has_rq));
  if (a.has_rq != 0 && (a.log_rq_wqes > kMaxLogRing || a.log_rq_stride < kMinLogStride ||
                        a.log_rq_stride > kMaxLogStride))
    return InvalidArgument(Concat("create QP: receive ring of 2^", a.log_rq_wqes, " entries of 2^",
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
  if (c.account->qps >= options_.limits.queue_pairs)
    return NoSpace(
        Concat("create QP: this client has ", options_.limits.queue_pairs,
               " queue pairs, the most (--client-queue-pairs of the RNIC daemon); destroy "
               "some"));
  const uint32_t doorbell = c.FreeRegister();
  if (doorbell == kMaxQpsPerContext)
    return NoSpace(
        Concat("create QP: this client has ", kMaxQpsPerContext,
               " queue pairs and completion queues with events, the most; destroy some"));

  HL_RETURN_IF_ERROR(ReserveRings(*umem->second, options_.limits));
  auto owned = std::make_unique<Qp>();
  Qp& qp = *owned;
  if (options_.fetch != EngineOptions::Fetch::kLate || options_.prefetch_depth != 0) {
    qp.send.snapshots = true;
    const uint32_t ring = 1u << a.log_sq_wqebbs;
    const bool few = options_.fetch == EngineOptions::Fetch::kLate &&
                     options_.prefetch_depth + rnic::kMaxWqeBytes / rnic::kWqebbBytes <= kSnapshots;
    qp.send.fetch_mask = (few ? std::min(ring, kSnapshots) : ring) - 1;
    qp.snapshot.bytes.resize((size_t{qp.send.fetch_mask} + 1) * rnic::kWqebbBytes);
  }
  const uint32_t qpn = qps_.Insert(std::move(owned));
  if (qpn == 0) return NoSpace("create QP: the device has no queue pair number left; destroy some");
  qp.qpn = qpn;
  qp.args = a;
  qp.send.deferred = options_.defer_delivery;
  Enlist(qp, c);
  qp.host = c.host;
  qp.pd = pd->second.get();
  qp.umem = umem->second.get();
  qp.send.cq = send_cq;
  qp.receive.cq = recv_cq;
  qp.flags = a.flags;
  qp.send.ring = qp.send.fetch = sq;
  qp.send.mask = (1u << a.log_sq_wqebbs) - 1;
  if (qp.send.snapshots) {
    qp.send.fetch = qp.snapshot.bytes.data();
  } else {
    qp.send.fetch_mask = qp.send.mask;
  }
  qp.receive.dbrec = dbrec;
  qp.receive.ring = rq;
  qp.receive.exists = a.has_rq != 0;
  qp.receive.mask = qp.receive.exists ? (1u << a.log_rq_wqes) - 1 : 0;
  qp.receive.log_stride = a.log_rq_stride;
  qp.transit.max_read_atomic = std::max(1u, a.max_read_atomic);
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

void QpLife::Enlist(Qp& qp, Context& c) {
  qp.context = &c;
  qp.account = c.account;
  qp.next_of_context = c.first_qp;
  if (c.first_qp != nullptr) c.first_qp->before_of_context = &qp;
  c.first_qp = &qp;
}

void QpLife::Delist(const Qp& qp) {
  (qp.before_of_context != nullptr ? qp.before_of_context->next_of_context : qp.context->first_qp) =
      qp.next_of_context;
  if (qp.next_of_context != nullptr) qp.next_of_context->before_of_context = qp.before_of_context;
}

void QpLife::StartCounters(Qp& qp) const {
  qp.send.consumer = qp.send.producer = qp.snapshot.fetched = options_.first_wqe;
  qp.receive.consumer = qp.receive.producer = qp.receive.enabled = options_.first_receive;
  qp.receive.flush_left = 0;
}

// Empties both queues and forgets what was under way, without completions. The client's memory is
// left alone.
void QpLife::ResetQueues(Qp& qp) {
  ready_.Remove(qp);
  Waiters::Remove(qp);
  qp.send.stall = Stall::kNone;
  qp.send.resume = false;
  qp.send.part.reset();
  StartCounters(qp);
  qp.timers.retry = {};
  qp.transit.outstanding_reads = 0;
  qp.transit.inflight.clear();
  qp.transit.failed = false;
  if (qp.peer.remote != nullptr) link_work_.Stop(qp);
  qp.peer.remote.reset();
  qp.send.deferred = options_.defer_delivery;
  durability_.Forget(qp);
  if (options_.persistence != nullptr) options_.persistence->Gone(qp.qpn);
  if (qp.context->uar != nullptr && !qp.service.responder_only)
    __atomic_store_n(&qp.context->uar->registers[qp.doorbell_index], 0, __ATOMIC_RELAXED);
}

Status QpLife::ModifyQp(Context& c, const ModifyQpArgs& a) {
  Qp* const qp = qps_.Find(a.qpn);
  if (qp == nullptr || qp->context != &c || qp->service.responder_only)
    return NotFound(Concat("modify QP: no queue pair ", a.qpn, " of this client"));
  if (a.state > static_cast<uint32_t>(QpState::kError))
    return InvalidArgument(Concat("modify QP: unknown state ", a.state));
  const auto to = static_cast<QpState>(a.state);
  const auto refuse = [&] {
    return InvalidArgument(Concat("modify QP ", a.qpn, ": ", StateName(qp->state), " to ",
                                  StateName(to),
                                  " is no transition; the order is RESET, INIT, RTR, RTS"));
  };
  switch (to) {
    case QpState::kReset:
      qps_.Disconnect(*qp);
      ResetQueues(*qp);
      qp->peer.connected = false;
      qp->peer.orphaned = false;
      qp->access = 0;
      break;
    case QpState::kInit:
      if (qp->state != QpState::kReset && qp->state != QpState::kInit) return refuse();
      if ((a.access & ~(kRemoteAccess | rnic::kLocalWrite)) != 0)
        return InvalidArgument(Concat("modify QP: unknown access rights ", a.access));
      qp->access = a.access & kRemoteAccess;
      break;
    case QpState::kReadyToReceive:
      if (qp->state != QpState::kInit) return refuse();
      HL_RETURN_IF_ERROR(routes_.Check(a));
      if (a.rnr_timer_us < 1 || a.rnr_timer_us > rnic::kMaxRnrTimer.count())
        return InvalidArgument(Concat("modify QP: RNR timer of ", a.rnr_timer_us, " us; 1 to ",
                                      rnic::kMaxRnrTimer.count()));
      qp->timers.rnr_timer_us = a.rnr_timer_us;
      qps_.Disconnect(*qp);
      std::copy(std::begin(a.remote_gid), std::end(a.remote_gid), qp->peer.gid.begin());
      qp->peer.qpn = a.remote_qpn & rnic::kObjectMask;
      qp->peer.connected = true;
      qp->peer.requests_before = RequestsRun(*qp);
      if (const LinkId link = routes_.To(qp->peer.gid); link != kNoLink) StartRemote(*qp, link);
      break;
    case QpState::kReadyToSend:
      if (qp->state != QpState::kReadyToReceive) return refuse();
      if (std::max(a.ack_timeout_ms, a.link_timeout_ms) > rnic::kMaxSilence.count() ||
          std::max(a.retry_count, a.rnr_retry) > rnic::kMaxRetries)
        return InvalidArgument(Concat("modify QP: timeouts of ", a.ack_timeout_ms, " and ",
                                      a.link_timeout_ms, " ms, retries ", a.retry_count, " and ",
                                      a.rnr_retry, "; at most ", rnic::kMaxSilence.count(),
                                      " ms and ", rnic::kMaxRetries));
      qp->timers.ack_timeout_ns = uint64_t{a.ack_timeout_ms} * 1'000'000;
      qp->timers.link_timeout_ns = uint64_t{a.link_timeout_ms} * 1'000'000;
      qp->timers.retry_count = static_cast<uint8_t>(a.retry_count);
      qp->timers.rnr_retry = static_cast<uint8_t>(a.rnr_retry);
      break;
    case QpState::kError:
      if (qp->state == QpState::kReset) return refuse();
      errors_.Enter(*qp);
      return {};
  }
  qp->state = to;
  if (to == QpState::kReadyToSend && qp->send.consumer != qp->send.producer) ready_.Add(*qp);
  return {};
}

void QpLife::Destroy(Qp& qp) {
  qps_.Disconnect(qp);
  ResetQueues(qp);
  looks_.Remove(qp);
  if (Qp* const answerer = qp.service.qpn != 0 ? qps_.Find(qp.service.qpn) : nullptr)
    Destroy(*answerer);
  asks_.Release(qp);
#define HL_ADD(name) qp.host->retired.name += qp.count.name;
  HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
  --qp.pd->users;
  if (qp.service.responder_only) {
    if (Qp* const client = qps_.Find(qp.peer.qpn);
        client != nullptr && client->service.qpn == qp.qpn)
      client->service.qpn = 0;
    --qp.context->responders;
  } else {
    --qp.umem->users, --qp.send.cq->users, --qp.receive.cq->users, --qp.account->qps;
    qp.context->doorbells[qp.doorbell_index] = nullptr;
    MarkRings(qp, false);
  }
  Delist(qp);
  qps_.Erase(qp.qpn);
}

Status QpLife::DestroyQp(Context& c, uint32_t qpn) {
  Qp* const qp = qps_.Find(qpn);
  if (qp == nullptr || qp->context != &c || qp->service.responder_only)
    return NotFound(Concat("destroy QP: no queue pair ", qpn, " of this client"));
  Destroy(*qp);
  return {};
}

Result<Qp*> QpLife::MakeResponder(Service& service, Host& host, const GidBytes& gid,
                                  uint32_t client_qpn, const Account* asker) {
  if (service.context->responders >= kMaxQpsPerContext)
    return NoSpace(Concat("connect service: ", "a service of ", host.name, " has ",
                          kMaxQpsPerContext, " connections, the most"));
  uint32_t of_asker = 0;
  ForEachQp(*service.context, [&](const Qp& qp) {
    of_asker += qp.service.responder_only && qp.service.asker == asker;
  });
  if (asker != nullptr && of_asker >= kMaxRespondersPerClient)
    return NoSpace(Concat("connect service: this client has ", of_asker,
                          " connections to services "
                          "of one client of ",
                          host.name, ", the most; destroy some"));
  auto owned = std::make_unique<Qp>();
  Qp& qp = *owned;
  const uint32_t qpn = qps_.Insert(std::move(owned));
  if (qpn == 0) return NoSpace("connect service: the device has no queue pair number left");
  qp.qpn = qpn;
  Enlist(qp, *service.context);
  qp.host = &host;
  qp.pd = service.pd;
  ++qp.pd->users, ++service.context->responders;
  qp.service.responder_only = true;
  qp.service.asker = asker;
  qp.state = QpState::kReadyToReceive;
  qp.access = rnic::kRemoteRead;
  qp.peer.gid = gid;
  qp.peer.qpn = client_qpn;
  qp.peer.connected = true;
  return &qp;
}

void QpLife::StartRemote(Qp& qp, LinkId link) {
  qp.peer.remote = std::make_unique<Remote>();
  qp.peer.remote->link = link;
  qp.send.deferred = true;
}

}  // namespace hyperloop::softrnic
