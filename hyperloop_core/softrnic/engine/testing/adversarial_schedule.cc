#include "softrnic/engine/testing/adversarial_schedule.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/pacer.h"

namespace hyperloop::softrnic {
namespace {

Pacer::Queue PacedQueue(const Qp& qp) {
  const size_t block = qp.send.consumer & qp.send.fetch_mask;
  return {.qpn = qp.qpn,
          .managed = (qp.flags & kQpSlaveSend) != 0,
          .remote = qp.peer.remote != nullptr,
          .ready = qp.ready,
          .consumer = qp.send.consumer,
          .producer = qp.send.producer,
          .wqe = qp.send.fetch + block * rnic::kWqebbBytes};
}

}  // namespace

bool AdversarialSchedule::Step() {
  if (dice_.Pick(2) == 0) doorbells_.Collect();
  if (dice_.Pick(4) == 0) retries_.LookAtSome(~size_t{0});
  if (options_.schedule == EngineOptions::Schedule::kRandom) RereadReceiveCounters();
  if (StepOnce()) return true;
  doorbells_.Collect();
  retries_.LookAtSome(~size_t{0});
  return StepOnce();
}

// A device may look at a receive counter again at any time, and must when no receive is left below
// the last value (Responder::ReceiveAvailable). This schedule looks at random times.
void AdversarialSchedule::RereadReceiveCounters() {
  if (dice_.Pick(4) != 0) return;
  qps_.ForEach([this](Qp& qp) {
    if (qp.receive.exists && qp.state != rnic::QpState::kError && dice_.Pick(2) == 0)
      qp.receive.producer =
          static_cast<uint16_t>(LoadDoorbellRecord(qp.receive.dbrec + rnic::kReceiveCounterOffset));
  });
}

bool AdversarialSchedule::StepOnce() {
  if (options_.pacer != nullptr) return StepPaced();
  struct Choice {
    Qp* qp;
    enum { kRun, kDeliver, kAcknowledge, kRetransmit } what;
  };
  std::vector<Choice> choices, last_resort;
  for (;;) {
    choices.clear();
    last_resort.clear();
    ready_.ForEach([&choices](Qp& qp) { choices.push_back({&qp, Choice::kRun}); });
    if (options_.defer_delivery) {
      qps_.ForEach([&](Qp& qp) {
        if (qp.transit.inflight.empty() || qp.state != rnic::QpState::kReadyToSend) return;
        if (qp.peer.remote == nullptr) {
          if (options_.retransmit && dice_.Pick(8) == 1)
            choices.push_back({&qp, Choice::kRetransmit});
          if (transit_.Deliverable(qp)) choices.push_back({&qp, Choice::kDeliver});
        }
        const bool late = options_.late_acknowledgements && !Transit::Answered(qp);
        if (qp.transit.inflight.front().delivered)
          (late ? last_resort : choices).push_back({&qp, Choice::kAcknowledge});
      });
    }
    if (choices.empty()) choices.swap(last_resort);
    if (choices.empty()) return false;
    const Choice choice = choices[dice_.Pick(choices.size())];
    Qp& qp = *choice.qp;
    if (options_.fetch == EngineOptions::Fetch::kRandom && qp.send.snapshots)
      snapshots_.Take(qp, false);
    switch (choice.what) {
      case Choice::kRun:
        ready_.Remove(qp);
        if (requester_.RunQueue(qp, 1) == 0) continue;  // it had nothing to run
        break;
      case Choice::kDeliver:
        transit_.Deliver(qp);
        break;
      case Choice::kAcknowledge:
        transit_.Acknowledge(qp);
        break;
      case Choice::kRetransmit:
        Retransmit(qp);
        continue;  // so that a client that steps until nothing happens ends
    }
    keys_.ForgetFault();
    return true;
  }
}

bool AdversarialSchedule::StepPaced() {
  Pacer& pacer = *options_.pacer;
  const auto look = [&pacer](const Qp& qp) { pacer.Look(PacedQueue(qp)); };
  for (;;) {
    qps_.ForEach(look);
    Qp* first = nullptr;
    uint64_t runs_at = 0;
    ready_.ForEach([&](Qp& qp) {
      const uint64_t at = pacer.RunsAt(PacedQueue(qp));
      if (first == nullptr || at < runs_at) first = &qp, runs_at = at;
    });
    if (first == nullptr || !pacer.Begin(PacedQueue(*first), runs_at)) return false;
    const uint16_t consumer = first->send.consumer;
    ready_.Remove(*first);
    const size_t steps = requester_.RunQueue(*first, 1);
    pacer.End(first->send.consumer != consumer);
    qps_.ForEach(look);
    if (steps == 0) continue;  // it had nothing to run
    keys_.ForgetFault();
    return true;
  }
}

// Fetches a WQE without an acknowledgement again, often the oldest one (a lost packet is sent
// again with all behind it). If software has reused the WQE's slot too early, that shows now.
void AdversarialSchedule::Retransmit(Qp& qp) {
  Inflight& entry =
      qp.transit.inflight[dice_.Pick(2) == 0 ? 0 : dice_.Pick(qp.transit.inflight.size())];
  if (entry.local) return;
  std::vector<std::byte> again(entry.wqe.size());
  for (size_t at = 0; at < again.size(); at += rnic::kSegmentBytes) {
    const size_t from = (static_cast<size_t>(entry.index & qp.send.mask) * rnic::kWqebbBytes + at) &
                        ((size_t{qp.send.mask} + 1) * rnic::kWqebbBytes - 1);
    std::memcpy(again.data() + at, qp.send.ring + from, rnic::kSegmentBytes);
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
