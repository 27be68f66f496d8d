#include "softrnic/engine/transit.h"

#include <algorithm>
#include <utility>

#include "softrnic/engine/bytes.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

// How many bytes the SGEs of a READ ask for.
uint64_t BytesAsked(const Inflight& entry) {
  uint64_t bytes = 0;
  for (size_t at = SgeOffset(entry.opcode); at < entry.wqe.size(); at += rnic::kSegmentBytes) {
    const uint32_t count = LoadBe32(entry.wqe.data() + at);
    bytes += count != 0 ? count : 1ull << 31;
  }
  return bytes;
}

uint32_t MinSegments(uint8_t opcode) {
  return IsSend(opcode) ? 1 : IsWrite(opcode) || opcode == rnic::kWqeRead ? 2 : 4;
}

}  // namespace

bool Transit::Blocked(const Qp& qp, const Wqe& wqe) {
  return (IsFence(wqe.flags) && qp.transit.outstanding_reads != 0) ||
         (HasAnswer(wqe.opcode) && qp.transit.outstanding_reads >= qp.transit.max_read_atomic) ||
         (qp.peer.remote != nullptr && qp.transit.inflight.size() >= kMaxRemoteInflight);
}

Outcome Transit::Accept(Qp& qp, const Wqe& wqe) {
  const bool known = IsSend(wqe.opcode) || IsWrite(wqe.opcode) || HasAnswer(wqe.opcode);
  if (!known || wqe.segments < MinSegments(wqe.opcode)) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  Inflight entry(wqe.index, wqe.opcode, wqe.flags);
  entry.segments = wqe.segments;
  entry.imm = wqe.imm;
  entry.wqe.assign(wqe.at, wqe.at + wqe.segments * size_t{rnic::kSegmentBytes});
  if (HasAnswer(wqe.opcode)) {
    ++qp.transit.outstanding_reads;
  } else if (qp.peer.remote == nullptr && dice_.Pick(2) == 0) {
    entry.gathered = true;
    if (!Gather(qp, entry, &entry.payload)) return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  }
  qp.send.consumer = static_cast<uint16_t>(qp.send.consumer + wqe.blocks);
  ++qp.count.wqes_executed;
  qp.transit.inflight.push_back(std::move(entry));
  return kOk;
}

void Transit::Defer(Qp& qp, const Wqe& wqe, Outcome outcome) {
  Inflight entry(wqe.index, wqe.opcode, wqe.flags);
  entry.local = entry.delivered = true;
  entry.outcome = outcome;
  qp.transit.inflight.push_back(std::move(entry));
  if (outcome != kOk) qp.send.stall = Stall::kFailed;
  if (qp.transit.inflight.size() == 1) Acknowledge(qp);
}

bool Transit::Gather(Qp& qp, const Inflight& entry, std::vector<std::byte>* payload) {
  SegmentList from;
  const uint32_t offset = SgeOffset(entry.opcode);
  if (!keys_.ResolveSges(qp.pd, entry.wqe.data() + offset,
                         entry.segments - offset / rnic::kSegmentBytes, 0, &from))
    return false;
  payload->clear();
  for (uint32_t i = 0; i < from.count; ++i)
    payload->insert(payload->end(), from.list[i].at, from.list[i].at + from.list[i].length);
  return true;
}

// Nothing behind a failed request is delivered. It may have failed at the requester, so that the
// peer knows nothing of it and would take what follows.
bool Transit::Deliverable(Qp& qp) {
  for (const Inflight& entry : qp.transit.inflight) {
    if (entry.delivered && entry.outcome != kOk) return false;
    if (entry.delivered) continue;
    return qp.timers.retry.why == kOk || retries_.Due(qp);
  }
  return false;
}

bool Transit::Answered(const Qp& qp) {
  return std::any_of(
      qp.transit.inflight.begin(), qp.transit.inflight.end(), [](const Inflight& entry) {
        return entry.delivered && !entry.local && (HasAnswer(entry.opcode) || entry.outcome != kOk);
      });
}

void Transit::Deliver(Qp& qp) {
  const auto it = std::find_if(qp.transit.inflight.begin(), qp.transit.inflight.end(),
                               [](const Inflight& entry) { return !entry.delivered; });
  Inflight& entry = *it;
  Qp* const peer = qps_.Peer(qp);
  if (peer == nullptr) {
    entry.outcome = kNoAnswer;
  } else if (!HasAnswer(entry.opcode) && !entry.gathered && !Gather(qp, entry, &entry.payload)) {
    entry.outcome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  } else {
    entry.outcome = DeliverTo(*peer, entry, Retries::WaitedForDisk(qp, /*request=*/0));
  }
  if (entry.outcome >= kNoEnd) {
    if (retries_.MayTryAgain(qp, entry.outcome, /*request=*/0)) return;
    entry.outcome = Retries::Exhausted(entry.outcome);
  }
  qp.timers.retry = {};
  entry.delivered = true;
  if (entry.outcome != kOk) return;
  if (!HasAnswer(entry.opcode))
    CountRequest(qp, Request::KindOf(entry.opcode), entry.payload.size());
}

// Runs the responder's half of a request. A loopback queue pair may go into error here; its entries
// stay.
Outcome Transit::DeliverTo(Qp& peer, Inflight& entry, bool again) {
  Request request = RequestOf(entry.opcode, entry.flags, entry.imm, entry.wqe.data());
  request.again = again;
  std::vector<std::byte>* bytes = &entry.payload;
  uint64_t length = entry.payload.size();
  if (HasAnswer(entry.opcode)) {
    bytes = &entry.answer;
    length = entry.opcode == rnic::kWqeRead ? BytesAsked(entry) : 8;
  }
  if (length > kMaxMessage) return MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
  bytes->resize(length);
  SegmentList list;
  list.Add(bytes->data(), static_cast<uint32_t>(length), nullptr);
  request.total = length;
  request.data = &list;
  return responder_.Serve(peer, request);
}

// In a loopback queue pair it may be the responder's half that failed. WQEs that were answered
// before, and the failure itself, are still reported; the rest is flushed.
void Transit::FlushOldest(Qp& qp) {
  const Inflight entry = std::move(qp.transit.inflight.front());
  qp.transit.inflight.pop_front();
  if (entry.delivered && !qp.transit.failed && !(entry.outcome == kOk && HasAnswer(entry.opcode))) {
    if (entry.outcome != kOk) {
      qp.transit.failed = true;
      cqs_.PostError(qp, *qp.send.cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index, entry.outcome);
    } else if (rnic::CqeModeOf(entry.flags) >= rnic::CqeMode::kAlways) {
      cqs_.Post(qp, *qp.send.cq, MLX5_CQE_REQ, entry.opcode, entry.index, 0, 0, 0);
    }
    return;
  }
  qp.transit.failed = true;
  if (rnic::CqeModeOf(entry.flags) != rnic::CqeMode::kOnFirstError)
    cqs_.PostError(qp, *qp.send.cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index,
                   MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

void Transit::Acknowledge(Qp& qp) {
  Inflight entry = std::move(qp.transit.inflight.front());
  qp.transit.inflight.pop_front();
  if (qp.peer.remote != nullptr) {
    if (qp.peer.remote->packed != 0) --qp.peer.remote->packed;
  } else if (entry.outcome == kOk && HasAnswer(entry.opcode)) {
    entry.outcome = TakeAnswer(qp, entry);
    entry.total = entry.answer.size();
  }
  if (HasAnswer(entry.opcode)) --qp.transit.outstanding_reads;
  if (qp.send.stall == Stall::kResponses &&
      (HasAnswer(entry.opcode) || qp.peer.remote != nullptr)) {
    qp.send.stall = Stall::kNone;
    ready_.Add(qp);
  }
  if (entry.outcome != kOk) {
    cqs_.PostError(qp, *qp.send.cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index, entry.outcome);
    qp.transit.failed = true;
    errors_.Enter(qp);
    return;
  }
  if (rnic::CqeModeOf(entry.flags) >= rnic::CqeMode::kAlways)
    cqs_.Post(qp, *qp.send.cq, MLX5_CQE_REQ, entry.opcode, entry.index,
              HasAnswer(entry.opcode) ? static_cast<uint32_t>(entry.total) : 0, 0, 0);
}

Outcome Transit::TakeAnswer(Qp& qp, Inflight& entry) {
  SegmentList to;
  const uint32_t offset = SgeOffset(entry.opcode);
  if (!keys_.ResolveSges(qp.pd, entry.wqe.data() + offset,
                         entry.segments - offset / rnic::kSegmentBytes, rnic::kLocalWrite, &to))
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  if (to.bytes != entry.answer.size()) return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
  const std::byte* from = entry.answer.data();
  for (uint32_t i = 0; i < to.count; ++i) {
    CopyBytes(to.list[i].at, from, to.list[i].length);
    durability_.NoteWrite(qp, to.list[i], /*scatter=*/false);
    from += to.list[i].length;
  }
  CountRequest(qp, Request::KindOf(entry.opcode), to.bytes);
  return kOk;
}

Inflight* Transit::FirstUnanswered(Qp& qp) {
  for (Inflight& entry : qp.transit.inflight)
    if (!entry.delivered) return &entry;
  return nullptr;
}

}  // namespace hyperloop::softrnic
