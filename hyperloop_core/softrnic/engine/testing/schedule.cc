// When things happen, for tests: a seeded order of single steps (Schedule::kRandom), and the
// deliveries, acknowledgements and retransmissions of deferred delivery.
#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {

// One thing that could happen next. False: nothing can.
bool Engine::Impl::SlowStep() {
  if (dice.Pick(2) == 0) CollectDoorbells();
  if (dice.Pick(4) == 0) retries.LookAtSome(~size_t{0});
  if (options.schedule == EngineOptions::Schedule::kRandom) RereadReceiveCounters();
  if (StepOnce()) return true;
  CollectDoorbells();
  retries.LookAtSome(~size_t{0});
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
          if (transit.Deliverable(qp)) choices.push_back({&qp, Choice::kDeliver});
        }
        const bool late = options.late_acknowledgements && !Transit::Answered(qp);
        if (qp.inflight.front().delivered)
          (late ? last_resort : choices).push_back({&qp, Choice::kAcknowledge});
      });
    }
    if (choices.empty()) choices.swap(last_resort);
    if (choices.empty()) return false;
    const Choice choice = choices[dice.Pick(choices.size())];
    Qp& qp = *choice.qp;
    if (options.fetch == EngineOptions::Fetch::kRandom && qp.snapshots) snapshots.Take(qp, false);
    switch (choice.what) {
      case Choice::kRun:
        ready.Remove(qp);
        if (RunQueue(qp, 1) == 0) continue;  // was listed for nothing
        break;
      case Choice::kDeliver:
        transit.Deliver(qp);
        break;
      case Choice::kAcknowledge:
        transit.Acknowledge(qp);
        break;
      case Choice::kRetransmit:
        Retransmit(qp);
        continue;  // so that a client that steps until nothing happens ends
    }
    keys.ForgetFault();
    return true;
  }
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

}  // namespace hyperloop::softrnic
