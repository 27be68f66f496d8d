#include "softrnic/engine/remote_requester.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/random_number.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kLeastLinkTryNs = 500'000'000;
constexpr uint64_t kTimerStepNs = 1'000'000;
constexpr uint32_t kOperandBytes = 16;  // of an atomic

bool IsAtomic(uint8_t opcode) { return HasAnswer(opcode) && opcode != rnic::kWqeRead; }

PacketType TypeOf(uint8_t opcode) {
  if (IsSend(opcode)) return PacketType::kSend;
  if (IsWrite(opcode)) return PacketType::kWrite;
  if (opcode == rnic::kWqeRead) return PacketType::kRead;
  return opcode == rnic::kWqeCompareSwap ? PacketType::kCompareSwap : PacketType::kFetchAdd;
}

// Whether somebody waits for the acknowledgement of a packet of `entry`: whoever gets its CQE, or
// requests for which there is no room soon. `last`: it is the last one of its WQE.
bool AckIsAwaited(const Qp& qp, const Inflight& entry, bool last) {
  const Remote& r = *qp.peer.remote;
  return (last && rnic::CqeModeOf(entry.flags) >= rnic::CqeMode::kAlways) ||
         qp.transit.inflight.size() >= kMaxRemoteInflight / 2 ||
         r.sent.size() >= kMaxUnacknowledged / 2 || r.sent_bytes >= kMaxUnacknowledgedBytes / 2;
}

// The next packet of `entry`, which moves `bytes` bytes, without its payload.
Packet NextPacket(const Qp& qp, const Inflight& entry, uint32_t bytes) {
  const Remote& r = *qp.peer.remote;
  Packet p{.type = TypeOf(entry.opcode),
           .dest_qpn = qp.peer.qpn,
           .source_qpn = qp.qpn,
           .session = r.session};
  p.psn = r.first_psn + static_cast<uint32_t>(r.sent.size());
  p.seen = r.first_psn;
  if (!IsSend(entry.opcode)) {
    const std::byte* const body = entry.wqe.data() + rnic::kSegmentBytes;
    p.addr = LoadBe64(body) + entry.moved;
    p.rkey = LoadBe32(body + 8);
  }
  if (IsAtomic(entry.opcode)) {
    p.length = kOperandBytes;
  } else {
    p.length = bytes;
    p.offset = static_cast<uint32_t>(entry.moved);
    p.total = static_cast<uint32_t>(entry.total);
  }
  if (entry.opcode == rnic::kWqeSendImm || entry.opcode == rnic::kWqeWriteImm)
    p.flags = kPacketImm, p.imm = entry.imm;
  if (HasAnswer(entry.opcode)) return p;
  if ((entry.flags & rnic::kSolicited) != 0) p.flags |= kPacketSolicited;
  if (!AckIsAwaited(qp, entry, p.offset + p.length == p.total)) p.flags |= kPacketAckLater;
  return p;
}

// The payload of an atomic's packet. A FETCH_ADD has one operand, and zeros in place of the other.
void CopyOperands(const Inflight& entry, std::byte* to) {
  const std::byte* const operands = entry.wqe.data() + 2 * size_t{rnic::kSegmentBytes};
  std::memcpy(to, operands, entry.opcode == rnic::kWqeCompareSwap ? kOperandBytes : 8);
}

}  // namespace

void RemoteRequester::Pump(Qp& qp) {
  Remote& r = *qp.peer.remote;
  std::deque<Inflight>& inflight = qp.transit.inflight;
  if (qp.state != rnic::QpState::kReadyToSend || r.phase == Remote::Phase::kStopped) return;
  for (;;) {
    while (r.packed < inflight.size() && (inflight[r.packed].local || inflight[r.packed].delivered))
      ++r.packed;
    const bool again = r.next_sent < r.sent.size();
    if (!again && (r.halted || r.packed == inflight.size())) return;
    if (r.link == kNoLink) return FailSent(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    if (r.phase == Remote::Phase::kIdle) SendConnect(qp);
    if (r.phase != Remote::Phase::kOpen || r.rnr_until_ns != 0) return;
    if (!again && (r.sent.size() >= kMaxUnacknowledged || r.sent_bytes >= kMaxUnacknowledgedBytes))
      return;
    if (!LinkTakes(qp)) {
      if (!r.listed) r.progress_ns = clock_.Now();  // the wait begins
      return link_work_.Watch(qp);
    }
    if (!traffic_.MaySend()) return link_work_.AddPump(qp);
    if (!again && !PackNext(qp, inflight[r.packed])) return;
    SentPacket& packet = r.sent[r.next_sent++];
    ++qp.count.link_packets_sent;
    if (std::exchange(packet.again, true)) ++qp.count.link_retransmits;
    traffic_.CountSent(packet.packet.size());
    traffic_.Send(r.link, packet.packet);
  }
}

// The memory at this end that `entry` reads or writes. False: it is not allowed.
bool RemoteRequester::ResolveLocal(const Qp& qp, const Inflight& entry, SegmentList* local) const {
  const uint32_t at = SgeOffset(entry.opcode);
  const uint32_t segments = IsAtomic(entry.opcode) ? 1 : entry.segments - at / rnic::kSegmentBytes;
  return keys_.ResolveSges(qp.pd, entry.wqe.data() + at, segments,
                           HasAnswer(entry.opcode) ? uint32_t{rnic::kLocalWrite} : 0, local);
}

// Appends the next packet of `entry` to Remote::sent. False: the WQE failed.
bool RemoteRequester::PackNext(Qp& qp, Inflight& entry) {
  Remote& r = *qp.peer.remote;
  const auto fail = [&](uint8_t syndrome) {
    FailEntry(qp, entry, syndrome);
    return false;
  };
  SegmentList local;
  if (!ResolveLocal(qp, entry, &local)) return fail(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  if (IsAtomic(entry.opcode) && local.bytes != 8)
    return fail(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
  if (local.bytes > kMaxMessage) return fail(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  entry.total = local.bytes;
  const auto bytes =
      static_cast<uint32_t>(std::min<uint64_t>(local.bytes - entry.moved, kMaxPayload));
  const bool last = entry.moved + bytes == local.bytes;

  const Packet p = NextPacket(qp, entry, bytes);
  const bool read = p.type == PacketType::kRead;
  std::vector<std::byte> packet(kPacketHeaderBytes + (read ? 0 : p.length));
  EncodeHeader(p, packet.data());
  std::byte* const payload = packet.data() + kPacketHeaderBytes;
  if (IsAtomic(entry.opcode)) {
    CopyOperands(entry, payload);
  } else if (!read && !CopyPayload(Slice(local, entry.moved, bytes), payload)) {
    return fail(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  }
  r.sent.push_back({p.type, last, false, p.length, std::move(packet)});
  r.sent_bytes += p.length;
  ++entry.packets;
  entry.moved += bytes;
  if (last) ++r.packed;
  if (r.sent.size() == 1) r.progress_ns = clock_.Now();
  link_work_.Watch(qp);
  return true;
}

// False: memory of `from` was lost.
bool RemoteRequester::CopyPayload(const SegmentList& from, std::byte* to) const {
  for (uint32_t i = 0; i < from.count; ++i) {
    CopyBytes(to, from.list[i].at, from.list[i].length);
    to += from.list[i].length;
    if (keys_.Lost(from.list[i])) return false;
  }
  return true;
}

// --- answers

// The oldest packet is acknowledged. If it is the last one of its WQE, so is the WQE.
void RemoteRequester::PopSent(Qp& qp) {
  Remote& r = *qp.peer.remote;
  const SentPacket packet = std::move(r.sent.front());
  Inflight* const entry = Transit::FirstUnanswered(qp);
  r.sent.pop_front();
  r.rnr_until_ns = 0;  // the peer has taken another copy of it since it had no receive
  ++r.first_psn;
  r.sent_bytes -= packet.bytes;
  if (r.next_sent != 0) --r.next_sent;
  --entry->packets;
  if (!packet.last) return;
  entry->delivered = true;
  CountRequest(qp, Request::KindOf(entry->opcode), entry->total);
}

void RemoteRequester::HandleAnswer(LinkId from, const Packet& p) {
  Qp* const qp = qps_.Find(p.dest_qpn);
  if (qp == nullptr || qp->peer.remote == nullptr || qp->state != rnic::QpState::kReadyToSend)
    return;
  Remote& r = *qp->peer.remote;
  if (r.link != from || r.phase != Remote::Phase::kOpen || p.session != r.session) return;
  ++qp->count.link_packets_received;
  clients_.RunFor(*qp, [&] { TakeAnswers(*qp, p); });
}

// Acts on a packet of the session. It answers one request, and says that those before it ran.
void RemoteRequester::TakeAnswers(Qp& qp, const Packet& p) {
  Remote& r = *qp.peer.remote;
  const uint32_t before = p.psn - r.first_psn;
  if (before >= r.sent.size() && !(r.halted && before < kMaxUnacknowledged))
    return;  // a repetition
  // The peer has no such session, so the packet acknowledges nothing.
  if (p.type == PacketType::kNak && p.syndrome == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR) {
    if (!r.sent.empty()) FailSent(qp, p.syndrome);
    return;
  }
  const auto needs_answer = [&r] { return r.sent.front().type >= PacketType::kRead; };
  for (uint32_t i = 0; i < before && !r.sent.empty(); ++i) {
    if (needs_answer()) return;  // the answer was lost; it is asked for again after the timeout
    PopSent(qp);
  }
  r.progress_ns = clock_.Now();
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
        if (qp.timers.rnr_retry != rnic::kForEver && r.rnr_retries++ >= qp.timers.rnr_retry)
          return FailSent(qp, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
        r.rnr_until_ns = clock_.Now() + uint64_t{std::max(p.length, 1u)} * 1000;
        break;
    }
  }
  Complete(qp);
  if (qp.peer.remote != nullptr) link_work_.AddPump(qp);
}

// Copies what a READ or an atomic brought to its place. False: it is not what was asked for, or the
// place is not allowed any more.
bool RemoteRequester::TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p) {
  const bool read = entry.opcode == rnic::kWqeRead;
  const SentPacket& asked = qp.peer.remote->sent.front();
  if ((read ? PacketType::kReadResponse : PacketType::kAtomicResponse) != p.type ||
      !HasAnswer(entry.opcode) || (read && asked.bytes != p.length))
    return false;
  SegmentList to;
  if (!ResolveLocal(qp, entry, &to)) {
    FailSent(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    return false;
  }
  const uint64_t old = read ? 0 : LoadBe64(p.payload.data());
  const std::byte* from = read ? p.payload.data() : reinterpret_cast<const std::byte*>(&old);
  const SegmentList slice = Slice(to, entry.answered, p.length);
  for (uint32_t i = 0; i < slice.count; ++i) {
    CopyBytes(slice.list[i].at, from, slice.list[i].length);
    durability_.NoteWrite(qp, slice.list[i], /*scatter=*/false);
    from += slice.list[i].length;
    if (!keys_.Lost(slice.list[i])) continue;
    FailSent(qp, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    return false;
  }
  entry.answered += p.length;
  return true;
}

// --- failures, completions

// Fails `entry`, which is not wholly sent, at this end. Its error is reported after the WQEs before
// it are complete.
void RemoteRequester::FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome) {
  Remote& r = *qp.peer.remote;
  for (; entry.packets != 0; --entry.packets) {
    r.sent_bytes -= r.sent.back().bytes;
    r.sent.pop_back();
  }
  r.next_sent = std::min(r.next_sent, r.sent.size());
  r.halted = true;
  EndWith(qp, entry, syndrome);
}

// Fails the oldest WQE without an answer. Nothing is sent any more.
void RemoteRequester::FailSent(Qp& qp, uint8_t syndrome) {
  Inflight* const entry = Transit::FirstUnanswered(qp);
  link_work_.Stop(qp);
  if (entry == nullptr) return;
  entry->packets = 0;
  EndWith(qp, *entry, syndrome);
}

void RemoteRequester::EndWith(Qp& qp, Inflight& entry, uint8_t syndrome) {
  entry.delivered = true;
  entry.outcome = syndrome;
  Waiters::Remove(qp);  // a WAIT behind it runs no more
  qp.send.stall = Stall::kFailed;
  Complete(qp);
}

// Completes WQEs from the front. With deferred delivery it does nothing, because the scheduler
// chooses when they complete.
void RemoteRequester::Complete(Qp& qp) {
  while (!deferred_ && qp.state == rnic::QpState::kReadyToSend && !qp.transit.inflight.empty() &&
         qp.transit.inflight.front().delivered)
    transit_.Acknowledge(qp);
}

// --- sessions and links

void RemoteRequester::SendConnect(Qp& qp) {
  Remote& r = *qp.peer.remote;
  if (r.phase == Remote::Phase::kIdle) {
    r.phase = Remote::Phase::kConnecting;
    r.nonce = RandomNumber();
    r.progress_ns = clock_.Now();
    link_work_.Watch(qp);
  }
  if (!LinkTakes(qp)) return;
  std::array<std::byte, 32> gids;
  std::memcpy(gids.data(), qp.peer.gid.data(), 16);
  std::memcpy(gids.data() + 16, qp.host->gid.data(), 16);
  traffic_.Send(r.link, {.type = PacketType::kConnect,
                         .dest_qpn = qp.peer.qpn,
                         .source_qpn = qp.qpn,
                         .session = r.nonce,
                         .payload = gids});
}

void RemoteRequester::HandleSession(LinkId from, const Packet& p) {
  Qp* const qp = qps_.Find(p.dest_qpn);
  if (qp == nullptr || qp->peer.remote == nullptr || qp->peer.qpn != p.source_qpn) return;
  Remote& r = *qp->peer.remote;
  if (r.link != from || r.phase != Remote::Phase::kConnecting || r.nonce != p.session) return;
  if (p.type == PacketType::kRefuse)
    return FailSent(*qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  r.phase = Remote::Phase::kOpen;
  r.session = p.addr;
  r.progress_ns = clock_.Now();
  clients_.RunFor(*qp, [&] { link_work_.AddPump(*qp); });
}

// What was under way when the link broke may be lost, so everything without an acknowledgement is
// sent again. The responder runs no request twice.
void RemoteRequester::HandleLinkUp(LinkId link) {
  link_work_.ForgetWaiting(link);
  qps_.ForEach([&](Qp& qp) {
    Remote* const r = qp.peer.remote.get();
    if (r == nullptr || r->link != link) return;
    r->waiting = false;
    clients_.RunFor(qp, [&] {
      if (r->phase == Remote::Phase::kConnecting) SendConnect(qp);
      if (r->phase != Remote::Phase::kOpen) return;
      r->next_sent = 0;
      link_work_.AddPump(qp);
    });
  });
}

void RemoteRequester::HandleRoom(LinkId link) {
  for (const uint32_t qpn : link_work_.TakeWaiting(link)) {
    Qp* const qp = qps_.Find(qpn);
    if (qp == nullptr || qp->peer.remote == nullptr) continue;
    Remote& r = *qp->peer.remote;
    r.waiting = false;
    clients_.RunFor(*qp, [&] {
      r.phase == Remote::Phase::kConnecting ? SendConnect(*qp) : link_work_.AddPump(*qp);
    });
  }
}

void RemoteRequester::EndOtherRoutes(uint64_t prefix, LinkId link) {
  qps_.ForEach([&](Qp& qp) {
    Remote* const r = qp.peer.remote.get();
    if (r == nullptr || GidPrefixAt(qp.peer.gid.data()) != prefix) return;
    // Those that answer for a service have no link, and those that are shut have none any more.
    if (link != kNoLink && (r->link == link || r->link == kNoLink)) return;
    link_work_.ForgetWaiting(qp);
    r->link = kNoLink;
    r->shut = true;
    clients_.RunFor(qp, [&] {
      if (qp.state == rnic::QpState::kReadyToSend && r->phase != Remote::Phase::kStopped &&
          Transit::FirstUnanswered(qp) != nullptr)
        FailSent(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    });
  });
}

// False: the link is down or full. HandleLinkUp or HandleRoom comes back to `qp` then.
bool RemoteRequester::LinkTakes(Qp& qp) {
  if (traffic_.Ready(qp.peer.remote->link)) return true;
  link_work_.AddWaiting(qp);
  return false;
}

size_t RemoteRequester::PumpSome(size_t most) {
  size_t done = 0;
  for (size_t n = std::min(link_work_.pumps(), most); n != 0 && traffic_.MaySend(); --n, ++done) {
    Qp* const qp = qps_.Find(link_work_.NextPump());
    if (qp == nullptr || qp->peer.remote == nullptr) continue;
    qp->peer.remote->pumping = false;
    clients_.RunFor(*qp, [&] { Pump(*qp); });
  }
  return done;
}

// --- timeouts

bool RemoteRequester::CheckTimers() {
  const uint64_t now = clock_.Now();
  if (now - timers_ns_ < kTimerStepNs) return false;
  timers_ns_ = now;
  bool any = false;
  link_work_.ForWatched([&](uint32_t qpn) {
    Qp* const qp = qps_.Find(qpn);
    Remote* const r = qp != nullptr ? qp->peer.remote.get() : nullptr;
    // A reset leaves the number on the list, and the queue pair may have been listed anew since.
    if (r != nullptr && std::exchange(r->checked_ns, now) == now) return false;
    const bool waits =
        r != nullptr && r->listed &&
        (r->phase == Remote::Phase::kConnecting ||
         (r->phase == Remote::Phase::kOpen &&
          (!r->sent.empty() || (r->waiting && Transit::FirstUnanswered(*qp) != nullptr))));
    if (waits) {
      clients_.RunFor(*qp, [&] { any |= TimerDue(*qp, now); });
    } else if (r != nullptr) {
      r->listed = false;
    }
    return waits;
  });
  return any;
}

// While the peer gives no sign of life, requests are sent again each ack_timeout. The oldest one
// fails after link_timeout or, if that is 0, after retry_count repetitions. Time in which the link
// takes nothing counts too. A request that found no receive is sent again after the time that the
// peer named.
bool RemoteRequester::TimerDue(Qp& qp, uint64_t now) {
  Remote& r = *qp.peer.remote;
  if (r.rnr_until_ns != 0) {
    if (now < r.rnr_until_ns) return false;
    r.rnr_until_ns = 0;
    r.progress_ns = now;
    link_work_.AddPump(qp);
    return true;
  }
  if (qp.timers.ack_timeout_ns == 0 && qp.timers.link_timeout_ns == 0) return false;
  // TCP mends a lost packet in some 200 ms, and asking again before that is no use.
  const uint64_t try_ns = std::max(qp.timers.ack_timeout_ns, kLeastLinkTryNs);
  const uint64_t limit_ns = qp.timers.link_timeout_ns != 0 ? qp.timers.link_timeout_ns
                                                           : (qp.timers.retry_count + 1) * try_ns;
  const bool over = now - r.progress_ns >= limit_ns;
  if (!over && now - std::max(r.progress_ns, r.again_ns) < try_ns) return false;
  r.again_ns = now;
  if (over) {
    FailSent(qp, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
  } else if (r.phase == Remote::Phase::kConnecting) {
    SendConnect(qp);
  } else {
    r.next_sent = 0;
    link_work_.AddPump(qp);
  }
  return true;
}

}  // namespace hyperloop::softrnic
