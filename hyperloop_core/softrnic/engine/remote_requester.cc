// The requester's half of a queue pair with a remote peer: WQEs become packets, answers become
// completions. Payloads are copied into packets when they are made, and packets kept until they are
// acknowledged; a WQE's buffers are the caller's again with its completion, as ever.
#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {

// Hands the link what it, the window and the turn take: first what goes again, then new packets.
void Engine::Impl::Pump(Qp& qp) {
  Remote& r = *qp.remote;
  if (qp.state != rnic::QpState::kReadyToSend || r.phase == Remote::Phase::kStopped) return;
  for (;;) {
    while (r.packed < qp.inflight.size() &&
           (qp.inflight[r.packed].local || qp.inflight[r.packed].delivered))
      ++r.packed;
    const bool again = r.next_sent < r.sent.size();
    if (!again && (r.halted || r.packed == qp.inflight.size())) return;
    if (r.phase == Remote::Phase::kIdle) SendConnect(qp);
    if (r.phase != Remote::Phase::kOpen || r.rnr_until_ns != 0) return;
    if (!again && (r.sent.size() >= kMaxUnacknowledged || r.sent_bytes >= kMaxUnacknowledgedBytes))
      return;
    if (!LinkTakes(qp)) {
      if (!r.listed) r.progress_ns = clock.Now();  // it begins to wait
      return link_work.Watch(qp);
    }
    if (turn_sent >= kPacketBytes) return link_work.AddPump(qp);
    if (!again && !PackNext(qp, qp.inflight[r.packed])) return;
    SentPacket& packet = r.sent[r.next_sent++];
    ++qp.count.link_packets_sent;
    if (std::exchange(packet.again, true)) ++qp.count.link_retransmits;
    turn_sent += TurnCost(packet.packet->size());
    port->Send(r.link, packet.packet);
  }
}

// The next packet of `entry`, to the end of Remote::sent. False: the WQE failed.
bool Engine::Impl::PackNext(Qp& qp, Inflight& entry) {
  Remote& r = *qp.remote;
  const std::byte* const body = entry.wqe.data() + rnic::kSegmentBytes;
  const bool answer = HasAnswer(entry.opcode);
  const bool read = entry.opcode == rnic::kWqeRead;
  const bool atomic = answer && !read;
  const uint32_t at = SgeOffset(entry.opcode);
  SegmentList local;
  const auto fail = [&](uint8_t syndrome) {
    FailEntry(qp, entry, syndrome);
    return false;
  };
  if (!keys.ResolveSges(qp.pd, entry.wqe.data() + at,
                        atomic ? 1 : entry.segments - at / rnic::kSegmentBytes,
                        answer ? uint32_t{rnic::kLocalWrite} : 0, &local))
    return fail(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  if (atomic && local.bytes != 8) return fail(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (local.bytes > kMaxMessage) return fail(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  entry.total = local.bytes;
  const auto bytes = static_cast<uint32_t>(std::min(local.bytes - entry.moved, kPacketBytes));
  const bool last = entry.moved + bytes == local.bytes;

  Packet p{.dest_qpn = qp.remote_qpn, .source_qpn = qp.qpn, .session = r.session};
  p.psn = r.first_psn + static_cast<uint32_t>(r.sent.size());
  p.seen = r.first_psn;
  if (!IsSend(entry.opcode)) p.addr = LoadBe64(body) + entry.moved, p.rkey = LoadBe32(body + 8);
  p.length = atomic ? 16 : bytes;
  if (!atomic)
    p.offset = static_cast<uint32_t>(entry.moved), p.total = static_cast<uint32_t>(local.bytes);
  p.type = IsSend(entry.opcode)                    ? PacketType::kSend
           : read                                  ? PacketType::kRead
           : entry.opcode == rnic::kWqeCompareSwap ? PacketType::kCompareSwap
           : atomic                                ? PacketType::kFetchAdd
                                                   : PacketType::kWrite;
  if (entry.opcode == rnic::kWqeSendImm || entry.opcode == rnic::kWqeWriteImm)
    p.flags = kPacketImm, p.imm = entry.imm;
  if (!answer && (entry.flags & rnic::kSolicited) != 0) p.flags |= kPacketSolicited;

  auto packet =
      std::make_shared<std::vector<std::byte>>(kPacketHeaderBytes + (read ? 0 : p.length));
  EncodeHeader(p, packet->data());
  std::byte* to = packet->data() + kPacketHeaderBytes;
  if (atomic) {
    std::memcpy(to, body + rnic::kSegmentBytes, 8);
    if (p.type == PacketType::kCompareSwap) std::memcpy(to + 8, body + rnic::kSegmentBytes + 8, 8);
  } else if (!read) {
    const SegmentList slice = Slice(local, entry.moved, bytes);
    for (uint32_t i = 0; i < slice.count; ++i) {
      CopyBytes(to, slice.list[i].at, slice.list[i].length);
      to += slice.list[i].length;
      if (keys.fault() && slice.list[i].key != nullptr && slice.list[i].key->poisoned)
        return fail(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    }
  }
  r.sent.push_back({p.type, last, false, p.length, std::move(packet)});
  r.sent_bytes += p.length;
  ++entry.packets;
  entry.moved += bytes;
  if (last) ++r.packed;
  if (r.sent.size() == 1) r.progress_ns = clock.Now();
  link_work.Watch(qp);
  return true;
}

// --- answers

// The oldest packet is acknowledged, and with its last one a WQE.
void Engine::Impl::PopSent(Qp& qp) {
  Remote& r = *qp.remote;
  const SentPacket packet = std::move(r.sent.front());
  Inflight* const entry = Transit::FirstUnanswered(qp);
  r.sent.pop_front();
  r.rnr_until_ns = 0;  // another copy of it was taken since the peer had no receive
  ++r.first_psn;
  r.sent_bytes -= packet.bytes;
  if (r.next_sent != 0) --r.next_sent;
  --entry->packets;
  if (!packet.last) return;
  entry->delivered = true;
  CountRequest(qp, Request::KindOf(entry->opcode), entry->total);
}

void Engine::Impl::HandleAnswer(LinkId from, const Packet& p) {
  Qp* const qp = qps.Find(p.dest_qpn);
  if (qp == nullptr || qp->remote == nullptr || qp->state != rnic::QpState::kReadyToSend) return;
  Remote& r = *qp->remote;
  if (r.link != from || r.phase != Remote::Phase::kOpen || p.session != r.session) return;
  ++qp->count.link_packets_received;
  clients.RunFor(*qp, [&] { TakeAnswers(*qp, p); });
}

// What a packet of the session says: the answer to one request, and that those before it ran.
void Engine::Impl::TakeAnswers(Qp& qp, const Packet& p) {
  Remote& r = *qp.remote;
  const uint32_t before = p.psn - r.first_psn;
  if (before >= r.sent.size() && !(r.halted && before < kMaxUnacknowledged)) return;  // again
  // It has no such session: what it says acknowledges nothing.
  if (p.type == PacketType::kNak && p.syndrome == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR) {
    if (!r.sent.empty()) FailSent(qp, p.syndrome);
    return;
  }
  const auto needs_answer = [&r] { return r.sent.front().type >= PacketType::kRead; };
  for (uint32_t i = 0; i < before && !r.sent.empty(); ++i) {
    if (needs_answer()) return;  // it was lost: asked for again after the timeout
    PopSent(qp);
  }
  r.progress_ns = clock.Now();
  if (!r.sent.empty()) {
    Inflight& entry = *Transit::FirstUnanswered(qp);
    switch (p.type) {
      case PacketType::kAck:
        r.rnr_retries = 0;
        if (!needs_answer()) PopSent(qp);
        break;
      case PacketType::kReadResponse:
      case PacketType::kAtomicResponse:
        r.rnr_retries = 0;
        if (TakeRemoteAnswer(qp, entry, p)) PopSent(qp);
        break;
      case PacketType::kNak:
        FailSent(qp, p.syndrome);
        return;
      default:  // kRnrNak
        if (r.rnr_until_ns != 0) break;
        ++qp.count.rnr_stalls;
        r.next_sent = 0;
        if (qp.rnr_retry != 7 && r.rnr_retries++ >= qp.rnr_retry)
          return FailSent(qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
        r.rnr_until_ns = clock.Now() + uint64_t{std::max(p.length, 1u)} * 1000;
        break;
    }
  }
  CompleteRemote(qp);
  if (qp.remote != nullptr) link_work.AddPump(qp);
}

// Places what a READ or an atomic brought. False: it is not what was asked for, or its place is
// gone.
bool Engine::Impl::TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p) {
  const bool read = entry.opcode == rnic::kWqeRead;
  const SentPacket& asked = qp.remote->sent.front();
  if ((read ? PacketType::kReadResponse : PacketType::kAtomicResponse) != p.type ||
      !HasAnswer(entry.opcode) || (read && asked.bytes != p.length))
    return false;
  SegmentList to;
  const uint32_t at = SgeOffset(entry.opcode);
  const uint32_t segments = read ? entry.segments - at / rnic::kSegmentBytes : 1;
  if (!keys.ResolveSges(qp.pd, entry.wqe.data() + at, segments, rnic::kLocalWrite, &to)) {
    FailSent(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    return false;
  }
  const uint64_t old = read ? 0 : LoadBe64(p.payload.data());
  const std::byte* from = read ? p.payload.data() : reinterpret_cast<const std::byte*>(&old);
  const SegmentList slice = Slice(to, entry.answered, p.length);
  for (uint32_t i = 0; i < slice.count; ++i) {
    CopyBytes(slice.list[i].at, from, slice.list[i].length);
    durability.NoteWrite(qp, slice.list[i], /*scatter=*/false);
    from += slice.list[i].length;
    if (!keys.fault() || !slice.list[i].key->poisoned) continue;
    FailSent(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    return false;
  }
  entry.answered += p.length;
  return true;
}

// --- failures, completions

// `entry`, which is not wholly sent, fails at this end: its error follows those before it.
void Engine::Impl::FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome) {
  Remote& r = *qp.remote;
  for (; entry.packets != 0; --entry.packets) {
    r.sent_bytes -= r.sent.back().bytes;
    r.sent.pop_back();
  }
  r.next_sent = std::min(r.next_sent, r.sent.size());
  r.halted = true;
  entry.delivered = true;
  entry.outcome = syndrome;
  qp.stall = Stall::kFailed;
  CompleteRemote(qp);
}

// The oldest WQE without an answer fails; nothing is sent any more.
void Engine::Impl::FailSent(Qp& qp, uint8_t syndrome) {
  Inflight* const entry = Transit::FirstUnanswered(qp);
  link_work.Stop(qp);
  if (entry == nullptr) return;
  entry->packets = 0;
  entry->delivered = true;
  entry->outcome = syndrome;
  qp.stall = Stall::kFailed;
  CompleteRemote(qp);
}

// Completes WQEs from the front. With deferred delivery that is the scheduler's to choose.
void Engine::Impl::CompleteRemote(Qp& qp) {
  while (!deferred && qp.state == rnic::QpState::kReadyToSend && !qp.inflight.empty() &&
         qp.inflight.front().delivered)
    transit.Acknowledge(qp);
}

}  // namespace hyperloop::softrnic
