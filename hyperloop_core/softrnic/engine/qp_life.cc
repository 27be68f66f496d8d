#include "softrnic/engine/qp_life.h"

#include <algorithm>
#include <memory>
#include <new>

#include "rnic/checks.h"
#include "softrnic/engine/durability_watch.h"
#include "softrnic/engine/rings.h"
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

Status CheckRingSizes(const CreateQpArgs& a) {
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
  return {};
}

// Whether ModifyQp may take a queue pair from one state to the other.
bool IsTransition(QpState from, QpState to) {
  switch (to) {
    case QpState::kReset:
      return true;
    case QpState::kInit:
      return from == QpState::kReset || from == QpState::kInit;
    case QpState::kReadyToReceive:
      return from == QpState::kInit;
    case QpState::kReadyToSend:
      return from == QpState::kReadyToReceive;
    case QpState::kError:
      return from != QpState::kReset;
  }
  return false;
}

}  // namespace

Result<QpLife::Parts> QpLife::FindParts(const Context& c, const CreateQpArgs& a) const {
  const auto pd = c.pds.find(a.pdn);
  if (pd == c.pds.end()) return NotFound(Text("create QP: no protection domain ", a.pdn));
  const auto umem = c.umems.find(a.umem);
  if (umem == c.umems.end()) return NotFound(Text("create QP: no registered memory ", a.umem));
  if (umem->second->length > kMaxRingUmemBytes)
    return InvalidArgument(Text("create QP: its rings are in registered memory of ",
                                umem->second->length, " B; at most ", kMaxRingUmemBytes));
  Cq* const send_cq = cqs_.Find(a.send_cqn);
  Cq* const recv_cq = cqs_.Find(a.recv_cqn);
  if (send_cq == nullptr || send_cq->context != &c || recv_cq == nullptr || recv_cq->context != &c)
    return NotFound(
        Text("create QP: no completion queue ", a.send_cqn, " or ", a.recv_cqn, " of this client"));
  HL_RETURN_IF_ERROR(CheckRingSizes(a));
  Parts parts{
      .pd = pd->second.get(), .umem = umem->second.get(), .send_cq = send_cq, .recv_cq = recv_cq};
  HL_RETURN_IF_ERROR(PlaceRings(a, &parts));
  return parts;
}

Status QpLife::PlaceRings(const CreateQpArgs& a, Parts* parts) {
  const Umem& umem = *parts->umem;
  parts->sq = RingAt(umem, a.sq_addr, uint64_t{rnic::kWqebbBytes} << a.log_sq_wqebbs, 64);
  parts->dbrec = RingAt(umem, a.dbrec_addr, rnic::kDoorbellRecordBytes, 8);
  if (a.has_rq != 0)
    parts->rq = RingAt(umem, a.rq_addr, (uint64_t{1} << a.log_rq_wqes) << a.log_rq_stride, 16);
  if (parts->sq == nullptr || parts->dbrec == nullptr || (a.has_rq != 0 && parts->rq == nullptr))
    return InvalidArgument(
        "create QP: a ring or the doorbell record is outside the registered memory or not aligned "
        "(send ring 64 B, receive ring 16 B, record 8 B)");
  return {};
}

Status QpLife::CheckRoomForQp(const Context& c) const {
  if (c.account->qps >= options_.limits.queue_pairs)
    return NoSpace(Text("create QP: this client has ", options_.limits.queue_pairs,
                        " queue pairs, the most (--client-queue-pairs of the RNIC daemon); destroy "
                        "some"));
  if (c.FreeRegister() == kMaxQpsPerContext)
    return NoSpace(Text("create QP: this client has ", kMaxQpsPerContext,
                        " queue pairs and completion queues with events, the most; destroy some"));
  return {};
}

// Makes room for the copies of WQEBBs of a send ring of `ring` WQEBBs, if the fetch mode or the
// prefetch depth wants copies.
void QpLife::MakeSnapshots(Qp& qp, uint32_t ring) const {
  const bool late = options_.test.fetch == EngineTestHooks::Fetch::kLate;
  if (late && options_.prefetch_depth == 0) return;
  qp.send.snapshots = true;
  const bool few =
      late && options_.prefetch_depth + rnic::kMaxWqeBytes / rnic::kWqebbBytes <= kSnapshots;
  qp.send.fetch_mask = (few ? std::min(ring, kSnapshots) : ring) - 1;
  qp.snapshot.bytes.resize((size_t{qp.send.fetch_mask} + 1) * rnic::kWqebbBytes);
}

// Points the queues of `qp` to their rings and completion queues.
void QpLife::SetUpQueues(Qp& qp, const CreateQpArgs& a, const Parts& parts) {
  qp.send.cq = parts.send_cq;
  qp.send.ring = qp.send.fetch = parts.sq;
  qp.send.mask = (1u << a.log_sq_wqebbs) - 1;
  if (qp.send.snapshots) {
    qp.send.fetch = qp.snapshot.bytes.data();
  } else {
    qp.send.fetch_mask = qp.send.mask;
  }
  qp.receive.cq = parts.recv_cq;
  qp.receive.dbrec = parts.dbrec;
  qp.receive.ring = parts.rq;
  qp.receive.exists = a.has_rq != 0;
  qp.receive.mask = qp.receive.exists ? (1u << a.log_rq_wqes) - 1 : 0;
  qp.receive.log_stride = a.log_rq_stride;
}

Status QpLife::CreateQp(Context& c, const CreateQpArgs& a, CreateQpReply* reply) {
  HL_ASSIGN_OR_RETURN(const Parts parts, FindParts(c, a));
  HL_RETURN_IF_ERROR(CheckRoomForQp(c));
  HL_RETURN_IF_ERROR(ReserveRings(*parts.umem, options_.limits));
  auto owned = std::make_unique<Qp>();
  Qp& qp = *owned;
  MakeSnapshots(qp, 1u << a.log_sq_wqebbs);
  const uint32_t qpn = qps_.Insert(std::move(owned));
  if (qpn == 0) return NoSpace("create QP: the device has no queue pair number left; destroy some");
  qp.qpn = qpn;
  qp.args = a;
  Enlist(qp, c);
  qp.host = c.host;
  qp.pd = parts.pd;
  qp.umem = parts.umem;
  qp.flags = a.flags;
  SetUpQueues(qp, a, parts);
  qp.send.deferred = options_.test.defer_delivery;
  qp.transit.max_read_atomic = std::max(1u, a.max_read_atomic);
  StartCounters(qp);
  ++qp.pd->users, ++qp.umem->users, ++c.account->qps;
  ++qp.send.cq->users, ++qp.receive.cq->users;
  qp.doorbell_index = c.FreeRegister();
  c.doorbells[qp.doorbell_index] = &qp;
  c.UseRegister(qp.doorbell_index);
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
  qp.send.consumer = qp.send.producer = qp.snapshot.fetched = options_.test.first_wqe;
  qp.receive.consumer = qp.receive.producer = qp.receive.enabled = options_.test.first_receive;
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
  qp.send.deferred = options_.test.defer_delivery;
  durability_.Forget(qp);
  if (options_.test.watch != nullptr) options_.test.watch->Gone(qp.qpn);
  if (qp.context->uar != nullptr && !qp.service.responder_only)
    __atomic_store_n(&qp.context->uar->registers[qp.doorbell_index], 0, __ATOMIC_RELAXED);
}

Status QpLife::ModifyQp(Context& c, const ModifyQpArgs& a) {
  Qp* const qp = qps_.Find(a.qpn);
  if (qp == nullptr || qp->context != &c || qp->service.responder_only)
    return NotFound(Text("modify QP: no queue pair ", a.qpn, " of this client"));
  if (a.state > static_cast<uint32_t>(QpState::kError))
    return InvalidArgument(Text("modify QP: unknown state ", a.state));
  const auto to = static_cast<QpState>(a.state);
  if (!IsTransition(qp->state, to))
    return InvalidArgument(Text("modify QP ", a.qpn, ": ", StateName(qp->state), " to ",
                                StateName(to),
                                " is no transition; the order is RESET, INIT, RTR, RTS"));
  switch (to) {
    case QpState::kReset:
      Reset(*qp);
      break;
    case QpState::kInit:
      HL_RETURN_IF_ERROR(GrantAccess(*qp, a));
      break;
    case QpState::kReadyToReceive:
      HL_RETURN_IF_ERROR(ConnectToPeer(*qp, a));
      break;
    case QpState::kReadyToSend:
      HL_RETURN_IF_ERROR(SetTimers(*qp, a));
      break;
    case QpState::kError:
      errors_.Enter(*qp);
      return {};
  }
  qp->state = to;
  if (to == QpState::kReadyToSend && qp->send.consumer != qp->send.producer) ready_.Add(*qp);
  return {};
}

void QpLife::Reset(Qp& qp) {
  qps_.Disconnect(qp);
  ResetQueues(qp);
  qp.peer.connected = false;
  qp.peer.orphaned = false;
  qp.access = 0;
}

Status QpLife::GrantAccess(Qp& qp, const ModifyQpArgs& a) {
  if ((a.access & ~(kRemoteAccess | rnic::kLocalWrite)) != 0)
    return InvalidArgument(Text("modify QP: unknown access rights ", a.access));
  qp.access = a.access & kRemoteAccess;
  return {};
}

Status QpLife::ConnectToPeer(Qp& qp, const ModifyQpArgs& a) {
  HL_RETURN_IF_ERROR(routes_.Check(a));
  if (a.rnr_timer_us < 1 || a.rnr_timer_us > rnic::kMaxRnrTimer.count())
    return InvalidArgument(
        Text("modify QP: RNR timer of ", a.rnr_timer_us, " us; 1 to ", rnic::kMaxRnrTimer.count()));
  GidBytes gid;
  std::copy(std::begin(a.remote_gid), std::end(a.remote_gid), gid.begin());
  const uint32_t qpn = a.remote_qpn & rnic::kObjectMask;
  const LinkId link = routes_.To(gid);
  // On a link number 0 means the daemons themselves. A daemon ends a link on which a queue pair
  // writes to it.
  if (link != kNoLink && qpn == 0)
    return InvalidArgument("modify QP: no queue pair of another daemon has the number 0");
  qp.timers.rnr_timer_us = a.rnr_timer_us;
  qps_.Disconnect(qp);
  qp.peer.gid = gid;
  qp.peer.qpn = qpn;
  qp.peer.connected = true;
  qp.peer.requests_before = RequestsRun(qp);
  if (link != kNoLink) StartRemote(qp, link);
  return {};
}

Status QpLife::SetTimers(Qp& qp, const ModifyQpArgs& a) {
  if (std::max(a.ack_timeout_ms, a.link_timeout_ms) > rnic::kMaxSilence.count() ||
      std::max(a.retry_count, a.rnr_retry) > rnic::kMaxRetries)
    return InvalidArgument(Text("modify QP: timeouts of ", a.ack_timeout_ms, " and ",
                                a.link_timeout_ms, " ms, retries ", a.retry_count, " and ",
                                a.rnr_retry, "; at most ", rnic::kMaxSilence.count(), " ms and ",
                                rnic::kMaxRetries));
  qp.timers.ack_timeout_ns = uint64_t{a.ack_timeout_ms} * 1'000'000;
  qp.timers.link_timeout_ns = uint64_t{a.link_timeout_ms} * 1'000'000;
  qp.timers.retry_count = static_cast<uint8_t>(a.retry_count);
  qp.timers.rnr_retry = static_cast<uint8_t>(a.rnr_retry);
  return {};
}

void QpLife::Destroy(Qp& qp) {
  qps_.Disconnect(qp);
  ResetQueues(qp);
  looks_.Remove(qp);
  if (Qp* const answerer = qp.service.qpn != 0 ? qps_.Find(qp.service.qpn) : nullptr)
    Destroy(*answerer);
  asks_.Release(qp);
#define HL_ADD(name) qp.host->tally->retired.name += qp.count.name;
  HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
  --qp.pd->users;
  if (qp.service.responder_only) {
    if (ResponderFor(qp.peer.gid, qp.peer.qpn) == &qp)
      responders_.erase({qp.peer.gid, qp.peer.qpn});
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
    return NotFound(Text("destroy QP: no queue pair ", qpn, " of this client"));
  Destroy(*qp);
  return {};
}

Result<Qp*> QpLife::MakeResponder(Service& service, Host& host, const GidBytes& gid,
                                  uint32_t client_qpn, const Account* asker) {
  if (service.context->responders >= kMaxQpsPerContext)
    return NoSpace(Text("connect service: ", "a service of ", host.name, " has ", kMaxQpsPerContext,
                        " connections, the most"));
  uint32_t of_asker = 0;
  if (asker != nullptr)
    ForEachQp(*service.context, [&](const Qp& qp) {
      of_asker += qp.service.responder_only && qp.service.asker == asker;
    });
  if (of_asker >= kMaxRespondersPerClient)
    return NoSpace(Text("connect service: this client has ", of_asker,
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
  if (asker != nullptr) return &qp;
  try {
    responders_[{gid, client_qpn}] = &qp;
  } catch (const std::bad_alloc&) {
    Destroy(qp);
    throw;
  }
  return &qp;
}

Qp* QpLife::ResponderFor(const GidBytes& gid, uint32_t client_qpn) const {
  const auto found = responders_.find({gid, client_qpn});
  return found != responders_.end() ? found->second : nullptr;
}

void QpLife::StartRemote(Qp& qp, LinkId link) {
  qp.peer.remote = std::make_unique<Remote>();
  qp.peer.remote->link = link;
  qp.send.deferred = true;
}

}  // namespace hyperloop::softrnic
