#include "softrnic/engine/requester.h"

#include <cstring>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {

using rnic::QpState;

size_t Requester::RunQueue(Qp& qp, size_t budget) {
  if (qp.state != QpState::kReadyToSend) [[unlikely]] {
    if (qp.state != QpState::kError) return 0;
    turn_.Begin();
    const size_t flushed = FlushStep(qp);
    if (flushed == 0) return 0;
    ready_.Add(qp);
    const size_t steps = flushed + turn_.extra();
    turn_.End(steps, 0);
    return steps;
  }
  // The queue became ready before it stalled (a queue may enable itself). What ends the stall makes
  // it ready again.
  if (qp.send.stall != Stall::kNone && qp.send.stall != Stall::kWaitMet) [[unlikely]]
    return 0;
  if (budget > kTurnSteps) budget = kTurnSteps;
  const uint64_t bytes_begin = qp.count.bytes_sent + qp.count.bytes_received;
  const uint64_t bytes_end = bytes_begin + kTurnBytes;
  size_t steps = 0;
  turn_.Begin();
  while (qp.send.consumer != qp.send.producer || qp.send.resume) {
    if (steps + turn_.extra() >= budget ||
        qp.count.bytes_sent + qp.count.bytes_received >= bytes_end) {
      ready_.Add(qp);
      break;
    }
    ++steps;
    if (ExecuteOne(qp) == Next::kStop) break;
  }
  steps += turn_.extra();
  turn_.End(steps, qp.count.bytes_sent + qp.count.bytes_received - bytes_begin);
  return steps;
}

// Fetches and checks the WQE at the consumer index. False: it is malformed, and the queue is in
// error now.
bool Requester::Decode(Qp& qp, const std::byte* base, Wqe* wqe) {
  const Qp::Send& send = qp.send;
  const uint32_t slot = send.consumer & send.fetch_mask;
  const std::byte* at = base + static_cast<size_t>(slot) * rnic::kWqebbBytes;
  const uint64_t head = LoadBe64(at);
  const auto available = static_cast<uint16_t>(send.producer - send.consumer);
  wqe->at = at;
  wqe->index = send.consumer;
  wqe->opcode = static_cast<uint8_t>(head >> 32);
  wqe->segments = head & 63;
  wqe->blocks = static_cast<uint8_t>((wqe->segments + 3) >> 2);
  const auto tail = Load<uint64_t>(at + 8);
  wqe->flags = static_cast<uint8_t>(tail >> 24);
  wqe->imm = static_cast<uint32_t>(tail >> 32);
  ++qp.count.wqes_fetched;
  const uint64_t expected =
      static_cast<uint64_t>(send.consumer) << 40 | static_cast<uint64_t>(qp.qpn) << 8;
  const bool opmod = (head >> 56) != 0;
  if (((head ^ expected) & header_mask_) != 0 || wqe->segments == 0 || opmod ||
      wqe->blocks > available) [[unlikely]] {
    if (wqe->blocks == 0 || wqe->blocks > available) wqe->blocks = 1;
    return false;
  }
  if (slot + wqe->blocks > send.fetch_mask + 1) [[unlikely]] {
    const size_t first = (send.fetch_mask + 1 - slot) * rnic::kWqebbBytes;
    const size_t bytes = wqe->blocks * size_t{rnic::kWqebbBytes};
    if (wqe->blocks > send.fetch_mask + 1) {
      wqe->blocks = 1;
      return false;
    }
    std::memcpy(wrapped_.data(), at, first);
    std::memcpy(wrapped_.data() + first, base, bytes - first);
    wqe->at = wrapped_.data();
  }
  __builtin_prefetch(at + size_t{rnic::kWqebbBytes} * wqe->blocks);  // the next one
  return true;
}

Requester::Next Requester::ExecuteOne(Qp& qp) {
  if (qp.send.resume) [[unlikely]]
    return Resume(qp);
  Wqe wqe;
  if (qp.send.snapshots) [[unlikely]]
    snapshots_.Take(qp, /*executing=*/true);
  if (!Decode(qp, qp.send.fetch, &wqe)) [[unlikely]] {
    Fail(qp, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    return Next::kStop;
  }
  if (qp.send.deferred) [[unlikely]]
    return ExecuteDeferred(qp, wqe);
  Outcome outcome;
  uint32_t bytes = 0;
  switch (wqe.opcode) {
    case rnic::kWqeNop:
      ++qp.count.nops;
      outcome = kOk;
      break;
    case rnic::kWqeWait:
      return ExecuteWait(qp, wqe);
    case rnic::kWqeSendEnable:
    case rnic::kWqeReceiveEnable:
      outcome = ExecuteEnable(qp, wqe);
      break;
    default:
      outcome = RunRequest(qp, wqe, &bytes);
      if (outcome >= kNoEnd) [[unlikely]]
        return outcome == kInParts ? Next::kMore : StallForRetry(qp, wqe, outcome);
  }
  if (keys_.fault()) [[unlikely]]
    keys_.ForgetFault();
  if (outcome != kOk) [[unlikely]] {
    Fail(qp, wqe, outcome);
    return Next::kStop;
  }
  return CompleteAndGoOn(qp, wqe, bytes);
}

// Goes on with the WQE at the consumer index, which has begun: a WAIT that is met, or a long
// transfer.
Requester::Next Requester::Resume(Qp& qp) {
  if (qp.send.part != nullptr) return ContinueParts(qp);
  qp.send.resume = false;
  qp.send.stall = Stall::kNone;
  Wqe wqe;
  wqe.index = qp.send.consumer;
  wqe.opcode = rnic::kWqeWait;
  wqe.flags = qp.wait.flags;
  wqe.blocks = qp.wait.blocks;
  return CompleteAndGoOn(qp, wqe, 0);
}

// Runs a SEND, WRITE, READ or atomic from start to end: the responder's half runs at once and
// copies from memory to memory.
template <Request::Kind kKind>
[[gnu::always_inline]] inline Outcome Requester::RunRequestOf(Qp& qp, const Wqe& wqe,
                                                              uint32_t* bytes) {
  constexpr bool kAtomic = kKind == Request::Kind::kAtomic;
  constexpr bool kRead = kKind == Request::Kind::kRead;
  constexpr bool kAnswered = kAtomic || kRead;
  constexpr uint32_t kFirstSge = kKind == Request::Kind::kSend ? 1 : kAtomic ? 3 : 2;
  Qp* const peer = qps_.Peer(qp);
  if (kAtomic ? wqe.segments != 4 : wqe.segments < kFirstSge) [[unlikely]]
    return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  SegmentList local;
  if (!keys_.ResolveSges(qp.pd, wqe.at + kFirstSge * rnic::kSegmentBytes, wqe.segments - kFirstSge,
                         kAnswered ? uint32_t{rnic::kLocalWrite} : 0, &local)) [[unlikely]]
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  if (kAtomic && local.bytes != 8) [[unlikely]]
    return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
  if (peer == nullptr) [[unlikely]]
    return kNoAnswer;
  const uint8_t opcode = kRead ? uint8_t{rnic::kWqeRead} : wqe.opcode;
  Request request = RequestOf(kKind, opcode, wqe.flags, wqe.imm, wqe.at);
  request.total = local.bytes;
  request.data = &local;
  if (local.bytes > kTurnBytes) [[unlikely]]
    return StartParts(qp, *peer, wqe, request);
  if (kRead && qp.timers.retry.why == kFlushing) [[unlikely]]
    request.again = Retries::WaitedForDisk(qp, qp.count.wqes_executed);
  const uint64_t total = kAtomic ? 8 : local.bytes;
  const Outcome outcome = responder_.Serve(*peer, request);
  if (outcome == kOk) {
    CountRequest(qp, kKind, total);
    if (kAnswered) {
      *bytes = static_cast<uint32_t>(total);
      const uint32_t pieces = kAtomic ? 1 : local.count;
      for (uint32_t i = 0; i < pieces; ++i)
        durability_.NoteWrite(qp, local.list[i], /*scatter=*/false);
    }
  }
  if (!kAtomic) turn_.AddPieces(local.count);
  if (keys_.Lost(local)) [[unlikely]]
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  return outcome;
}

Outcome Requester::RunRequest(Qp& qp, const Wqe& wqe, uint32_t* bytes) {
  switch (wqe.opcode) {
    case rnic::kWqeSend:
    case rnic::kWqeSendImm:
      return RunRequestOf<Request::Kind::kSend>(qp, wqe, bytes);
    case rnic::kWqeWrite:
    case rnic::kWqeWriteImm:
      return RunRequestOf<Request::Kind::kWrite>(qp, wqe, bytes);
    case rnic::kWqeRead:
      return RunRequestOf<Request::Kind::kRead>(qp, wqe, bytes);
    case rnic::kWqeCompareSwap:
    case rnic::kWqeFetchAdd:
      return RunRequestOf<Request::Kind::kAtomic>(qp, wqe, bytes);
    default:
      return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  }
}

// Hands the WQE to Transit: its request is delivered later, and its completion waits for those
// before it.
Requester::Next Requester::ExecuteDeferred(Qp& qp, const Wqe& wqe) {
  if (Transit::Blocked(qp, wqe)) {
    qp.send.stall = Stall::kResponses;
    ++qp.count.fence_stalls;
    return Next::kStop;
  }
  switch (wqe.opcode) {
    case rnic::kWqeNop:
      ++qp.count.nops;
      return CompleteAndGoOn(qp, wqe, 0);
    case rnic::kWqeWait:
      return ExecuteWait(qp, wqe);
    case rnic::kWqeSendEnable:
    case rnic::kWqeReceiveEnable: {
      const Outcome outcome = ExecuteEnable(qp, wqe);
      if (outcome != kOk) {
        Fail(qp, wqe, outcome);
        return Next::kStop;
      }
      return CompleteAndGoOn(qp, wqe, 0);
    }
    default:
      break;
  }
  if (const Outcome outcome = transit_.Accept(qp, wqe); outcome != kOk) {
    Fail(qp, wqe, outcome);
    return Next::kStop;
  }
  if (qp.peer.remote != nullptr) remote_.Pump(qp);
  const bool more = qp.state == rnic::QpState::kReadyToSend && qp.send.stall == Stall::kNone;
  return more ? Next::kMore : Next::kStop;
}

Requester::Next Requester::StallForRetry(Qp& qp, const Wqe& wqe, Outcome why) {
  if (!retries_.MayTryAgain(qp, why, qp.count.wqes_executed)) {
    Fail(qp, wqe, Retries::Exhausted(why));
    return Next::kStop;
  }
  retries_.Wait(qp);
  return Next::kStop;
}

// --- cross-channel

Requester::Next Requester::ExecuteWait(Qp& qp, const Wqe& wqe) {
  const uint32_t index = LoadBe32(wqe.at + 24) & rnic::kWaitIndexMask;
  Cq* const cq = cqs_.Find(LoadBe32(wqe.at + 28) & rnic::kObjectMask);
  // A WAIT for a CQ of another context is refused, because that CQ is on another UAR page.
  if (wqe.segments != 2 || (qp.flags & kQpMaster) == 0 || cq == nullptr ||
      cq->context != qp.context) [[unlikely]] {
    Fail(qp, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    return Next::kStop;
  }
  ++qp.count.waits;
  if (CompletionQueues::WaitMet(*cq, index)) return CompleteAndGoOn(qp, wqe, 0);
  ++qp.count.wait_stalls;
  qp.send.stall = Stall::kWait;
  qp.wait.index = index;
  qp.wait.flags = wqe.flags;
  qp.wait.blocks = wqe.blocks;
  Waiters::Add(qp, *cq);
  return Next::kStop;
}

Outcome Requester::ExecuteEnable(Qp& qp, const Wqe& wqe) {
  const auto index = static_cast<uint16_t>(LoadBe32(wqe.at + 24));
  Qp* const target = qps_.Find(LoadBe32(wqe.at + 28) & rnic::kObjectMask);
  const uint32_t needed = wqe.opcode == rnic::kWqeSendEnable ? kQpSlaveSend : kQpSlaveReceive;
  if (wqe.segments != 2 || (qp.flags & kQpMaster) == 0 || target == nullptr ||
      target->context != qp.context || (target->flags & needed) == 0 ||
      target->state == QpState::kReset) [[unlikely]]
    return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  ++qp.count.enables;
  if (wqe.opcode == rnic::kWqeSendEnable) {
    Advance(*target, static_cast<uint16_t>(index + overrun_blocks_));
  } else if (static_cast<uint16_t>(index - target->receive.enabled - 1) < 0x8000) {
    target->receive.enabled = index;  // Retries wakes a sender that waits for it
  }
  return kOk;
}

void Requester::Advance(Qp& qp, uint16_t index) {
  if (static_cast<uint16_t>(index - qp.send.producer - 1) >= 0x8000) return;
  qp.send.producer = index;
  if (qp.send.snapshots) [[unlikely]]
    snapshots_.Take(qp, /*executing=*/false);
  if (qp.send.stall != Stall::kNone) return;
  if (qp.state != QpState::kReadyToSend && qp.state != QpState::kError) return;
  __builtin_prefetch(qp.send.fetch + static_cast<size_t>(qp.send.consumer & qp.send.fetch_mask) *
                                         rnic::kWqebbBytes);
  ready_.Add(qp);
}

// --- completion

void Requester::Complete(Qp& qp, const Wqe& wqe, uint32_t bytes) {
  qp.send.consumer = static_cast<uint16_t>(qp.send.consumer + wqe.blocks);
  ++qp.count.wqes_executed;
  if (qp.send.deferred) [[unlikely]]
    return transit_.Defer(qp, wqe, kOk);
  if (rnic::CqeModeOf(wqe.flags) >= rnic::CqeMode::kAlways)
    cqs_.Post(qp, *qp.send.cq, MLX5_CQE_REQ, wqe.opcode, wqe.index, bytes, 0, 0);
}

// Puts the queue into error, with a CQE for `wqe`: every CE mode gives one for the WQE that failed.
void Requester::Fail(Qp& qp, const Wqe& wqe, uint8_t syndrome) {
  qp.send.consumer = static_cast<uint16_t>(wqe.index + wqe.blocks);
  if (qp.send.deferred) [[unlikely]]
    return transit_.Defer(qp, wqe, syndrome);
  cqs_.PostError(qp, *qp.send.cq, MLX5_CQE_REQ_ERR, wqe.opcode, wqe.index, syndrome);
  errors_.Enter(qp);
}

// Flushes one WQE or receive of a queue pair in error, with a CQE. Returns 0 when nothing is left.
size_t Requester::FlushStep(Qp& qp) {
  Qp::Send& send = qp.send;
  if (!qp.transit.inflight.empty()) {
    transit_.FlushOldest(qp);
    return 1;
  }
  if (send.consumer != send.producer) {
    const std::byte* const at =
        send.ring + static_cast<size_t>(send.consumer & send.mask) * rnic::kWqebbBytes;
    const uint64_t head = LoadBe64(at);
    const auto available = static_cast<uint16_t>(send.producer - send.consumer);
    auto blocks = static_cast<uint16_t>(((head & 63) + 3) >> 2);
    if (blocks == 0 || blocks > available) blocks = 1;
    const uint16_t index = send.consumer;
    send.consumer = static_cast<uint16_t>(send.consumer + blocks);
    if (rnic::CqeModeOf(static_cast<uint8_t>(at[11])) != rnic::CqeMode::kOnFirstError)
      cqs_.PostError(qp, *send.cq, MLX5_CQE_REQ_ERR, static_cast<uint8_t>(head >> 32), index,
                     MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    return 1;
  }
  if (qp.receive.exists && qp.receive.flush_left != 0) {
    --qp.receive.flush_left;
    cqs_.PostError(qp, *qp.receive.cq, MLX5_CQE_RESP_ERR, 0, qp.receive.consumer++,
                   MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    return 1;
  }
  return 0;
}

}  // namespace hyperloop::softrnic
