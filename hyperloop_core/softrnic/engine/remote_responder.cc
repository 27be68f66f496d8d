#include "softrnic/engine/remote_responder.h"

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/random_number.h"

namespace hyperloop::softrnic {

using rnic::QpState;

namespace {

uint8_t OpcodeOf(const Packet& p) {
  const bool imm = (p.flags & kPacketImm) != 0;
  switch (p.type) {
    case PacketType::kSend:
      return imm ? rnic::kWqeSendImm : rnic::kWqeSend;
    case PacketType::kWrite:
      return imm ? rnic::kWqeWriteImm : rnic::kWqeWrite;
    case PacketType::kRead:
      return rnic::kWqeRead;
    case PacketType::kFetchAdd:
      return rnic::kWqeFetchAdd;
    default:
      return rnic::kWqeCompareSwap;
  }
}

// The request of packet `p`, without its data.
Request RequestOf(const Packet& p) {
  const uint8_t opcode = OpcodeOf(p);
  Request request(Request::KindOf(opcode), opcode);
  request.solicited = (p.flags & kPacketSolicited) != 0;
  request.last = p.offset + p.length == p.total;
  request.imm = p.imm;
  request.rkey = p.rkey;
  request.addr = p.addr;
  request.offset = p.offset;
  request.total = p.total;
  if (p.type == PacketType::kCompareSwap || p.type == PacketType::kFetchAdd) {
    request.swap_add = LoadBe64(p.payload.data());
    request.compare = LoadBe64(p.payload.data() + 8);
  }
  return request;
}

// The answer to `request`, without payload.
Packet AnswerTo(const Packet& request, PacketType type) {
  return {.type = type,
          .dest_qpn = request.source_qpn,
          .source_qpn = request.dest_qpn,
          .session = request.session,
          .psn = request.psn};
}

}  // namespace

void RemoteResponder::Answer(LinkId to, const Packet& request, PacketType type, uint8_t syndrome,
                             uint32_t length) {
  Packet answer = AnswerTo(request, type);
  answer.syndrome = syndrome;
  answer.length = length;
  if (answer.dest_qpn != 0) traffic_.Send(to, answer);
}

void RemoteResponder::HandleRequest(LinkId from, const Packet& p, HeldRequest* held) {
  const bool again = held != nullptr && std::exchange(held->flushing, false);
  Qp* const qp = qps_.Find(p.dest_qpn);
  const bool ours = qp != nullptr && qp->peer.remote != nullptr && !qp->peer.remote->shut &&
                    qp->peer.remote->granted == p.session && qp->peer.qpn == p.source_qpn;
  if (ours && qp->peer.remote->nak_syndrome != 0) {
    Packet failed = p;
    failed.psn = qp->peer.remote->nak_psn;
    return Answer(from, failed, PacketType::kNak, qp->peer.remote->nak_syndrome, 0);
  }
  if (!ours || (qp->state != QpState::kReadyToReceive && qp->state != QpState::kReadyToSend))
    return Answer(from, p, PacketType::kNak, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, 0);
  Remote& r = *qp->peer.remote;
  ++qp->count.link_packets_received;
  while (!r.kept.empty() && static_cast<int32_t>(r.kept.front().psn - p.seen) < 0) {
    r.kept_bytes -= r.kept.front().packet.size();
    r.kept.pop_front();
  }
  clients_.RunFor(*qp, [&] {
    if (held == nullptr && !r.held.empty()) return Hold(from, *qp, p);
    const auto ahead = static_cast<int32_t>(p.psn - r.expected);
    if (ahead < 0) HandleDuplicate(from, *qp, p);
    if (ahead == 0) RunNext(from, *qp, p, again);
  });
}

// Runs the request that is next in order. `again`: it is a READ whose flush was begun.
void RemoteResponder::RunNext(LinkId from, Qp& qp, const Packet& p, bool again) {
  Remote& r = *qp.peer.remote;
  std::vector<std::byte> answer;
  const Outcome outcome = RunPacket(qp, p, again, &answer);
  keys_.ForgetFault();
  if (outcome == kFlushing) {
    if (r.held.empty()) {
      link_work_.AddHolding(qp.qpn);
      Hold(from, qp, p);
    }
    r.held.front().flushing = true;
    return;
  }
  if (outcome == kRnr) return Answer(from, p, PacketType::kRnrNak, 0, qp.timers.rnr_timer_us);
  r.began = true;
  if (outcome != kOk) {
    r.nak_psn = p.psn;
    r.nak_syndrome = outcome;
    return Answer(from, p, PacketType::kNak, outcome, 0);
  }
  ++r.expected;
  if (answer.empty())
    return AcknowledgeLater(from, qp, p.psn, /*awaited=*/(p.flags & kPacketAckLater) == 0);
  r.ack_due = false;  // the answer acknowledges what came before it
  const size_t bytes = answer.size();
  r.kept.push_back({p.psn, std::move(answer)});
  r.kept_bytes += bytes;
  traffic_.CountAnswer(bytes);
  traffic_.Send(from, r.kept.back().packet);
}

// Keeps a request until the READ at `expected` has flushed. A request is dropped, and comes again,
// if one before it is missing or if it exceeds the bounds on what is held.
void RemoteResponder::Hold(LinkId from, Qp& qp, const Packet& p) {
  Remote& r = *qp.peer.remote;
  const auto place = static_cast<int32_t>(p.psn - r.expected);
  if (place < 0) return HandleDuplicate(from, qp, p);
  const auto index = static_cast<size_t>(place);
  if (index < r.held.size()) {
    r.held[index].from = from;  // its answer goes back by the link that brought it last
    return;
  }
  // A request of no bytes takes memory, too.
  const uint64_t bytes =
      sizeof(HeldRequest) + kPacketHeaderBytes + std::max<uint64_t>(p.length, p.payload.size());
  if (index != r.held.size() || index == kMaxUnacknowledged ||
      (index != 0 && link_work_.held_bytes() + bytes > kMaxHeldBytes))
    return;
  r.held.push_back({from, false, bytes, EncodePacket(p)});
  link_work_.AddHeldBytes(bytes);
}

size_t RemoteResponder::ServeHeld(size_t budget) {
  size_t done = 0;
  for (size_t n = link_work_.holding(); n != 0; --n) {
    const uint32_t qpn = link_work_.NextHolding();
    Qp* const qp = qps_.Find(qpn);
    if (qp == nullptr || qp->peer.remote == nullptr || qp->peer.remote->held.empty()) continue;
    clients_.RunFor(*qp, [&] {
      if (ServeHeldOf(*qp, budget, &done)) link_work_.AddHolding(qpn);
    });
  }
  return done;
}

// True: requests of `qp` are still held.
bool RemoteResponder::ServeHeldOf(Qp& qp, size_t budget, size_t* done) {
  Remote& r = *qp.peer.remote;
  while (*done < budget && traffic_.MayReceive()) {
    if (r.held.front().flushing && Durability::Flushing(qp)) {
      // A requester gives up a responder that says nothing. This acknowledgement has the READ's
      // number, so it acknowledges only what is before the READ.
      if (const uint64_t now = clock_.Now(); now - r.sign_ns >= kSignOfLifeNs) {
        r.sign_ns = now;
        AcknowledgeLater(r.held.front().from, qp, r.expected, /*awaited=*/true);
      }
      return true;
    }
    HeldRequest& next = r.held.front();
    traffic_.CountReceived(next.packet.size());
    ++*done;
    HandleRequest(next.from, *ParsePacket(next.packet), &next);
    if (r.held.empty()) return false;  // the queue pair failed
    if (next.flushing) continue;
    link_work_.SubHeldBytes(next.bytes);
    r.held.pop_front();
    if (r.held.empty()) return false;
  }
  return true;
}

// Notes that request `psn`, or a newer one that runs or comes again before that, is to be
// acknowledged: at the end of the turn if that is `awaited`, else kAckDelayNs later at most.
void RemoteResponder::AcknowledgeLater(LinkId to, Qp& qp, uint32_t psn, bool awaited) {
  Remote& r = *qp.peer.remote;
  link_work_.AddAck(qp);
  if (!r.ack_due || static_cast<int32_t>(psn - r.ack_psn) > 0) r.ack_psn = psn;
  if (!r.ack_due) {
    r.ack_awaited = false;
    r.ack_since_ns = clock_.Now();
  }
  r.ack_awaited |= awaited;
  r.ack_due = true;
  r.ack_link = to;
}

// Answers a request that ran already. Its acknowledgement or answer was lost with a link, or is
// late.
void RemoteResponder::HandleDuplicate(LinkId from, Qp& qp, const Packet& p) {
  Remote& r = *qp.peer.remote;
  ++qp.count.link_duplicates;
  if (p.type < PacketType::kRead) return AcknowledgeLater(from, qp, p.psn, /*awaited=*/true);
  for (const KeptAnswer& kept : r.kept) {
    if (kept.psn != p.psn) continue;
    // The answer acknowledges what came before it.
    if (static_cast<int32_t>(r.ack_psn - p.psn) < 0) r.ack_due = false;
    traffic_.Send(from, kept.packet);
    return;
  }
}

// Runs one request. `*answer` becomes the answer's packet, if the request is a READ or an atomic.
Outcome RemoteResponder::RunPacket(Qp& qp, const Packet& p, bool again,
                                   std::vector<std::byte>* answer) {
  Remote& r = *qp.peer.remote;
  if (r.received != 0 && p.type != PacketType::kSend)  // in the middle of a SEND
    return responder_.Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  Request request = RequestOf(p);
  request.again = again;
  SegmentList data;
  request.data = &data;
  if (p.type == PacketType::kSend || p.type == PacketType::kWrite) {
    data.Add(const_cast<std::byte*>(p.payload.data()), static_cast<uint32_t>(p.payload.size()),
             nullptr);
    return p.type == PacketType::kSend ? RunSend(qp, p, request) : RunLong(qp, p, request);
  }
  // The requester has left more answers unacknowledged than it may.
  if (r.kept.size() >= kMaxUnacknowledged ||
      r.kept_bytes > kMaxUnacknowledgedBytes + kMaxUnacknowledged * kPacketHeaderBytes)
    return responder_.Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (p.type == PacketType::kRead) {
    Packet reply = AnswerTo(p, PacketType::kReadResponse);
    reply.length = p.length;
    answer->resize(kPacketHeaderBytes + p.length);
    EncodeHeader(reply, answer->data());
    data.Add(answer->data() + kPacketHeaderBytes, p.length, nullptr);
    return RunLong(qp, p, request);
  }
  uint64_t old = 0;
  data.Add(reinterpret_cast<std::byte*>(&old), sizeof(old), nullptr);
  const Outcome outcome = responder_.Serve(qp, request);
  old = htobe64(old);
  Packet reply = AnswerTo(p, PacketType::kAtomicResponse);
  reply.payload = std::as_bytes(std::span(&old, 1));
  *answer = EncodePacket(reply);
  return outcome;
}

Outcome RemoteResponder::RunSend(Qp& qp, const Packet& p, const Request& request) {
  Remote& r = *qp.peer.remote;
  if (p.offset != r.received) return responder_.Refuse(qp, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  const Outcome outcome = responder_.Serve(qp, request);
  if (outcome == kOk) r.received = request.last ? 0 : r.received + p.length;
  return outcome;
}

// A long WRITE or READ is refused as a whole, before its first byte moves.
Outcome RemoteResponder::RunLong(Qp& qp, const Packet& p, const Request& request) {
  if (p.offset == 0 && !request.last) {
    SegmentList places;
    if (const Outcome outcome = responder_.Prepare(qp, request, Responder::Rights::kNow, &places);
        outcome != kOk)
      return outcome;
  }
  return responder_.Serve(qp, request);
}

void RemoteResponder::SendAcks() {
  link_work_.ForAcks([this](uint32_t qpn) {
    Qp* const qp = qps_.Find(qpn);
    if (qp == nullptr || qp->peer.remote == nullptr) return false;
    Remote& r = *qp->peer.remote;
    if (r.ack_due && !r.ack_awaited && clock_.Now() - r.ack_since_ns < kAckDelayNs) return true;
    r.ack_listed = false;
    if (!std::exchange(r.ack_due, false)) return false;
    clients_.RunFor(*qp, [&] {
      traffic_.Send(qp->peer.remote->ack_link, {.type = PacketType::kAck,
                                                .dest_qpn = qp->peer.qpn,
                                                .source_qpn = qp->qpn,
                                                .session = qp->peer.remote->granted,
                                                .psn = qp->peer.remote->ack_psn});
    });
    return false;
  });
}

// --- sessions

void RemoteResponder::HandleConnect(LinkId from, const Packet& p) {
  Qp* const qp = qps_.Find(p.dest_qpn);
  // A queue pair that is not connected yet gives no answer, as in its own engine. The requester
  // asks again.
  if (qp != nullptr && qp->state < rnic::QpState::kReadyToReceive) return;
  const bool ours =
      qp != nullptr && qp->peer.remote != nullptr && !qp->peer.remote->shut && qp->peer.connected &&
      qp->peer.qpn == p.source_qpn &&
      (qp->state == rnic::QpState::kReadyToReceive || qp->state == rnic::QpState::kReadyToSend) &&
      std::memcmp(qp->host->gid.data(), p.payload.data(), 16) == 0 &&
      std::memcmp(qp->peer.gid.data(), p.payload.data() + 16, 16) == 0;
  Packet reply{.type = PacketType::kRefuse,
               .dest_qpn = p.source_qpn,
               .source_qpn = p.dest_qpn,
               .session = p.session};
  if (ours) {
    Remote& r = *qp->peer.remote;
    // Once requests ran, a requester that was reset gets no new session until this queue pair is
    // reset too.
    if (r.granted_nonce != p.session && !r.began)
      r.granted_nonce = p.session, r.granted = RandomNumber();
    if (r.granted_nonce == p.session) reply.type = PacketType::kAccept, reply.addr = r.granted;
  }
  if (reply.source_qpn == 0 || reply.dest_qpn == 0) return;
  traffic_.Send(from, reply);
}

}  // namespace hyperloop::softrnic
