// When things happen, for tests: early fetch, and (Schedule::kRandom) a seeded order of single
// steps.
#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {

// Copies WQEBBs below the producer index out of the ring: as many as the fetch mode wants and, when
// executing, all that the WQE at the consumer index has. What runs is the copy.
void Engine::Impl::TakeSnapshots(Qp& qp, bool executing) {
  const uint32_t ring = qp.sq_mask + 1;
  const uint32_t available =
      std::min<uint32_t>(static_cast<uint16_t>(qp.producer - qp.consumer), ring);
  uint32_t have = static_cast<uint16_t>(qp.fetched - qp.consumer);
  if (have > available) have = 0, qp.fetched = qp.consumer;
  const auto copy = [&](uint32_t index) {
    return qp.snapshot.data() + static_cast<size_t>(index & qp.fetch_mask) * rnic::kWqebbBytes;
  };
  const auto ring_block = [&](uint32_t index) {
    return qp.sq + static_cast<size_t>(index & qp.sq_mask) * rnic::kWqebbBytes;
  };
  const auto fetch_to = [&](uint32_t want) {
    for (want = std::min(want, available); have < want; ++have, ++qp.fetched) {
      std::memcpy(copy(qp.fetched), ring_block(qp.fetched), rnic::kWqebbBytes);
    }
  };
  uint32_t want = 0;
  switch (options.fetch) {
    case EngineOptions::Fetch::kEarly:
      want = ring;
      break;
    case EngineOptions::Fetch::kRandom:
      want = static_cast<uint32_t>(dice.Throw() % (available + 1));
      break;
    case EngineOptions::Fetch::kLate:
      break;
  }
  fetch_to(std::max(want, options.prefetch_depth));
  if (!executing) return;
  fetch_to(1);
  const uint32_t blocks = (std::to_integer<uint32_t>(copy(qp.consumer)[7]) % 64 + 3) / 4;
  fetch_to(blocks);
  for (uint32_t i = 0; i < std::min(blocks, available); ++i) {
    const uint32_t index = qp.consumer + i;
    if (std::memcmp(copy(index), ring_block(index), rnic::kWqebbBytes) == 0) continue;
    ++qp.count.stale_fetches;
    break;
  }
}

// --- single steps

// One thing that could happen next. False: nothing can.
bool Engine::Impl::SlowStep() {
  if (dice.Pick(2) == 0) CollectDoorbells();
  if (dice.Pick(4) == 0) RetryStalled(~size_t{0});
  if (options.schedule == EngineOptions::Schedule::kRandom) RereadReceiveCounters();
  if (StepOnce()) return true;
  CollectDoorbells();
  RetryStalled(~size_t{0});
  return StepOnce();
}

// When a device looks at a receive counter again is its own affair: at least when the last value is
// used up (Responder::ReceiveAvailable), and here at any time.
void Engine::Impl::RereadReceiveCounters() {
  if (dice.Pick(4) != 0) return;
  qps.ForEach([this](Qp& qp) {
    if (qp.has_rq && qp.state != rnic::QpState::kError && dice.Pick(2) == 0)
      qp.rq_producer =
          static_cast<uint16_t>(LoadDoorbellRecord(qp.dbrec + rnic::kReceiveCounterOffset));
  });
}

bool Engine::Impl::StepOnce() {
  struct Choice {
    Qp* qp;
    enum { kRun, kDeliver, kAcknowledge, kRetransmit } what;
  };
  std::vector<Choice> choices, last_resort;
  for (;;) {
    choices.clear();
    last_resort.clear();
    ready.ForEach([&choices](Qp& qp) { choices.push_back({&qp, Choice::kRun}); });
    if (deferred) {
      qps.ForEach([&](Qp& qp) {
        if (qp.inflight.empty() || qp.state != rnic::QpState::kReadyToSend) return;
        if (qp.remote == nullptr) {
          if (options.retransmit && dice.Pick(8) == 1)
            choices.push_back({&qp, Choice::kRetransmit});
          if (Deliverable(qp)) choices.push_back({&qp, Choice::kDeliver});
        }
        const bool late = options.late_acknowledgements && !Answered(qp);
        if (qp.inflight.front().delivered)
          (late ? last_resort : choices).push_back({&qp, Choice::kAcknowledge});
      });
    }
    if (choices.empty()) choices.swap(last_resort);
    if (choices.empty()) return false;
    const Choice choice = choices[dice.Pick(choices.size())];
    Qp& qp = *choice.qp;
    if (options.fetch == EngineOptions::Fetch::kRandom && qp.snapshots) TakeSnapshots(qp, false);
    switch (choice.what) {
      case Choice::kRun:
        ready.Remove(qp);
        if (RunQueue(qp, 1) == 0) continue;  // was listed for nothing
        break;
      case Choice::kDeliver:
        Deliver(qp);
        break;
      case Choice::kAcknowledge:
        Acknowledge(qp);
        break;
      case Choice::kRetransmit:
        Retransmit(qp);
        continue;  // so that a client that steps until nothing happens ends
    }
    keys.ForgetFault();
    return true;
  }
}

// --- deferred delivery

namespace {

// What the SGEs of a READ ask for.
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

Engine::Impl::Next Engine::Impl::ExecuteDeferred(Qp& qp, const Wqe& wqe) {
  const bool blocked = (IsFence(wqe.flags) && qp.outstanding_reads != 0) ||
                       (HasAnswer(wqe.opcode) && qp.outstanding_reads >= qp.max_read_atomic) ||
                       (qp.remote != nullptr && qp.inflight.size() >= kMaxRemoteInflight);
  if (blocked) {
    qp.stall = Stall::kResponses;
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
  const bool known = IsSend(wqe.opcode) || IsWrite(wqe.opcode) || HasAnswer(wqe.opcode);
  if (!known || wqe.segments < MinSegments(wqe.opcode)) {
    Fail(qp, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    return Next::kStop;
  }
  Inflight entry(wqe.index, wqe.opcode, wqe.flags, wqe.blocks);
  entry.segments = wqe.segments;
  entry.imm = wqe.imm;
  entry.wqe.assign(wqe.at, wqe.at + wqe.segments * size_t{rnic::kSegmentBytes});
  if (HasAnswer(wqe.opcode)) {
    ++qp.outstanding_reads;
  } else if (qp.remote == nullptr && dice.Pick(2) == 0) {
    entry.gathered = true;
    if (!Gather(qp, entry, &entry.payload)) {
      Fail(qp, wqe, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
      return Next::kStop;
    }
  }
  qp.consumer = static_cast<uint16_t>(qp.consumer + wqe.blocks);
  ++qp.count.wqes_executed;
  qp.inflight.push_back(std::move(entry));
  if (qp.remote != nullptr) Pump(qp);
  const bool more = qp.state == rnic::QpState::kReadyToSend && qp.stall == Stall::kNone;
  return more ? Next::kMore : Next::kStop;
}

// A WQE that needs no responder: its completion still waits for those before it. A failed one stops
// the queue until then.
void Engine::Impl::Defer(Qp& qp, const Wqe& wqe, uint8_t outcome) {
  Inflight entry(wqe.index, wqe.opcode, wqe.flags, wqe.blocks);
  entry.local = entry.delivered = true;
  entry.outcome = outcome;
  qp.inflight.push_back(std::move(entry));
  if (outcome != kOk) qp.stall = Stall::kFailed;
  if (qp.inflight.size() == 1) Acknowledge(qp);
}

bool Engine::Impl::Gather(Qp& qp, const Inflight& entry, std::vector<std::byte>* payload) {
  SegmentList from;
  const uint32_t offset = SgeOffset(entry.opcode);
  if (!keys.ResolveSges(qp.pd, entry.wqe.data() + offset,
                        entry.segments - offset / rnic::kSegmentBytes, 0, &from))
    return false;
  payload->clear();
  for (uint32_t i = 0; i < from.count; ++i)
    payload->insert(payload->end(), from.list[i].at, from.list[i].at + from.list[i].length);
  return true;
}

// True if the first request without an answer can have one now. Nothing behind a failed one can: it
// may have failed here, where the peer knows nothing of it and would take what follows.
bool Engine::Impl::Deliverable(Qp& qp) {
  for (const Inflight& entry : qp.inflight) {
    if (entry.delivered && entry.outcome != kOk) return false;
    if (entry.delivered) continue;
    return qp.retry.why == kOk || RetryDue(qp);
  }
  return false;
}

// True if the peer has sent something that acknowledges all before it.
bool Engine::Impl::Answered(const Qp& qp) {
  return std::any_of(qp.inflight.begin(), qp.inflight.end(), [](const Inflight& entry) {
    return entry.delivered && !entry.local && (HasAnswer(entry.opcode) || entry.outcome != kOk);
  });
}

void Engine::Impl::Deliver(Qp& qp) {
  const auto it = std::find_if(qp.inflight.begin(), qp.inflight.end(),
                               [](const Inflight& entry) { return !entry.delivered; });
  Inflight& entry = *it;
  Qp* const peer = qps.Peer(qp);
  if (peer == nullptr) {
    entry.outcome = kNoAnswer;
  } else if (!HasAnswer(entry.opcode) && !entry.gathered && !Gather(qp, entry, &entry.payload)) {
    entry.outcome = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  } else {
    entry.outcome = DeliverTo(*peer, entry, WaitedForDisk(qp, /*request=*/0));
  }
  if (entry.outcome >= kNoEnd) {
    if (MayTryAgain(qp, entry.outcome, /*request=*/0)) return;
    entry.outcome = Exhausted(entry.outcome);
  }
  qp.retry = {};
  entry.delivered = true;
  if (entry.outcome != kOk) return;
  qp.count.bytes_sent += entry.payload.size();
  qp.count.sends += IsSend(entry.opcode);
  qp.count.writes += IsWrite(entry.opcode);
}

// The responder's half. A loopback queue pair may go into error here, but its entries stay.
Outcome Engine::Impl::DeliverTo(Qp& peer, Inflight& entry, bool again) {
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
  return responder.Serve(peer, request);
}

// A WQE without an acknowledgement, often the oldest (a lost packet is sent again with all behind
// it), is fetched again: if its slot was reused, that shows now.
void Engine::Impl::Retransmit(Qp& qp) {
  Inflight& entry = qp.inflight[dice.Pick(2) == 0 ? 0 : dice.Pick(qp.inflight.size())];
  if (entry.local) return;
  std::vector<std::byte> again(entry.wqe.size());
  for (size_t at = 0; at < again.size(); at += rnic::kSegmentBytes) {
    const size_t from = (static_cast<size_t>(entry.index & qp.sq_mask) * rnic::kWqebbBytes + at) &
                        ((size_t{qp.sq_mask} + 1) * rnic::kWqebbBytes - 1);
    std::memcpy(again.data() + at, qp.sq + from, rnic::kSegmentBytes);
  }
  const uint64_t expected = static_cast<uint64_t>(entry.index) << 40 |
                            static_cast<uint64_t>(entry.opcode) << 32 |
                            static_cast<uint64_t>(qp.qpn) << 8 | entry.segments;
  if (LoadBe64(again.data()) != expected) {
    ++qp.count.stale_fetches;
    entry.delivered = true;
    entry.outcome = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    return;
  }
  if (entry.delivered || HasAnswer(entry.opcode)) return;
  entry.wqe = std::move(again);
  entry.gathered = false;
}

// The oldest WQE of a queue pair in error ends. Where the queue pair's other half failed
// (loopback), what was answered before and the failure itself are still told; the rest is flushed.
void Engine::Impl::FlushInflight(Qp& qp) {
  const Inflight entry = std::move(qp.inflight.front());
  qp.inflight.pop_front();
  if (entry.delivered && !qp.failed && !(entry.outcome == kOk && HasAnswer(entry.opcode))) {
    if (entry.outcome != kOk) {
      qp.failed = true;
      cqs.PostError(qp, *qp.send_cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index, entry.outcome);
    } else if (rnic::CqeModeOf(entry.flags) >= rnic::CqeMode::kAlways) {
      cqs.Post(qp, *qp.send_cq, MLX5_CQE_REQ, entry.opcode, entry.index, 0, 0, 0);
    }
    return;
  }
  qp.failed = true;
  if (rnic::CqeModeOf(entry.flags) != rnic::CqeMode::kOnFirstError)
    cqs.PostError(qp, *qp.send_cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index,
                  MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
}

// The oldest request's answer arrives: its data is placed, its completion made.
void Engine::Impl::Acknowledge(Qp& qp) {
  Inflight entry = std::move(qp.inflight.front());
  qp.inflight.pop_front();
  if (qp.remote != nullptr) {
    if (qp.remote->packed != 0) --qp.remote->packed;
  } else if (entry.outcome == kOk && HasAnswer(entry.opcode)) {
    entry.outcome = TakeAnswer(qp, entry);
    entry.total = entry.answer.size();
  }
  if (HasAnswer(entry.opcode)) --qp.outstanding_reads;
  if (qp.stall == Stall::kResponses && (HasAnswer(entry.opcode) || qp.remote != nullptr)) {
    qp.stall = Stall::kNone;
    ready.Add(qp);
  }
  if (entry.outcome != kOk) {
    cqs.PostError(qp, *qp.send_cq, MLX5_CQE_REQ_ERR, entry.opcode, entry.index, entry.outcome);
    qp.failed = true;
    errors.Enter(qp);
    return;
  }
  if (rnic::CqeModeOf(entry.flags) >= rnic::CqeMode::kAlways)
    cqs.Post(qp, *qp.send_cq, MLX5_CQE_REQ, entry.opcode, entry.index,
             HasAnswer(entry.opcode) ? static_cast<uint32_t>(entry.total) : 0, 0, 0);
}

Outcome Engine::Impl::TakeAnswer(Qp& qp, Inflight& entry) {
  SegmentList to;
  const uint32_t offset = SgeOffset(entry.opcode);
  if (!keys.ResolveSges(qp.pd, entry.wqe.data() + offset,
                        entry.segments - offset / rnic::kSegmentBytes, rnic::kLocalWrite, &to))
    return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  if (to.bytes != entry.answer.size()) return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
  const std::byte* from = entry.answer.data();
  for (uint32_t i = 0; i < to.count; ++i) {
    CopyBytes(to.list[i].at, from, to.list[i].length);
    durability.NoteWrite(qp, to.list[i], /*scatter=*/false);
    from += to.list[i].length;
  }
  qp.count.bytes_received += to.bytes;
  ++(entry.opcode == rnic::kWqeRead ? qp.count.reads : qp.count.atomics);
  return kOk;
}

}  // namespace hyperloop::softrnic
