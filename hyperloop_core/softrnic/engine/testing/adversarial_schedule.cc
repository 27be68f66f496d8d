#include "softrnic/engine/testing/adversarial_schedule.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/dice.h"
#include "softrnic/engine/doorbells.h"
#include "softrnic/engine/engine.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/transit.h"

namespace hyperloop::softrnic {
namespace {

class AdversarialSchedule final : public SingleSteps {
 public:
  AdversarialSchedule(const EngineParts& engine, bool random)
      : engine_(engine), hooks_(engine.options.test), dice_(engine.dice), random_(random) {
    if (random) dice_.LetChoose();
  }

  bool Step() override;

 private:
  void RereadReceiveCounters();
  bool StepOnce();
  void Retransmit(Qp& qp);

  const EngineParts engine_;
  const EngineTestHooks& hooks_;
  Dice& dice_;
  const bool random_;
};

bool AdversarialSchedule::Step() {
  if (dice_.Pick(2) == 0) engine_.doorbells.Collect();
  if (dice_.Pick(4) == 0) engine_.retries.LookAtSome(~size_t{0});
  if (random_) RereadReceiveCounters();
  if (StepOnce()) return true;
  engine_.doorbells.Collect();
  engine_.retries.LookAtSome(~size_t{0});
  return StepOnce();
}

// A device may look at a receive counter again at any time, and must when no receive is left below
// the last value (Responder::ReceiveAvailable). This schedule looks at random times.
void AdversarialSchedule::RereadReceiveCounters() {
  if (dice_.Pick(4) != 0) return;
  engine_.qps.ForEach([this](Qp& qp) {
    if (qp.receive.exists && qp.state != rnic::QpState::kError && dice_.Pick(2) == 0)
      qp.receive.producer =
          static_cast<uint16_t>(LoadDoorbellRecord(qp.receive.dbrec + rnic::kReceiveCounterOffset));
  });
}

bool AdversarialSchedule::StepOnce() {
  struct Choice {
    Qp* qp;
    enum { kRun, kDeliver, kAcknowledge, kRetransmit } what;
  };
  std::vector<Choice> choices, last_resort;
  for (;;) {
    choices.clear();
    last_resort.clear();
    engine_.ready.ForEach([&choices](Qp& qp) { choices.push_back({&qp, Choice::kRun}); });
    if (hooks_.defer_delivery) {
      engine_.qps.ForEach([&](Qp& qp) {
        if (qp.transit.inflight.empty() || qp.state != rnic::QpState::kReadyToSend) return;
        if (qp.peer.remote == nullptr) {
          if (hooks_.retransmit && dice_.Pick(8) == 1)
            choices.push_back({&qp, Choice::kRetransmit});
          if (engine_.transit.Deliverable(qp)) choices.push_back({&qp, Choice::kDeliver});
        }
        const bool late = hooks_.late_acknowledgements && !Transit::Answered(qp);
        if (qp.transit.inflight.front().delivered)
          (late ? last_resort : choices).push_back({&qp, Choice::kAcknowledge});
      });
    }
    if (choices.empty()) choices.swap(last_resort);
    if (choices.empty()) return false;
    const Choice choice = choices[dice_.Pick(choices.size())];
    Qp& qp = *choice.qp;
    if (hooks_.fetch == EngineTestHooks::Fetch::kRandom && qp.send.snapshots)
      engine_.snapshots.Take(qp, false);
    switch (choice.what) {
      case Choice::kRun:
        engine_.ready.Remove(qp);
        if (engine_.requester.RunQueue(qp, 1) == 0) continue;  // it had nothing to run
        break;
      case Choice::kDeliver:
        engine_.transit.Deliver(qp);
        break;
      case Choice::kAcknowledge:
        engine_.transit.Acknowledge(qp);
        break;
      case Choice::kRetransmit:
        Retransmit(qp);
        continue;  // so that a client that steps until nothing happens ends
    }
    engine_.keys.ForgetFault();
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

}  // namespace

std::unique_ptr<SingleSteps> RandomSteps(const EngineParts& engine) {
  return std::make_unique<AdversarialSchedule>(engine, /*random=*/true);
}

std::unique_ptr<SingleSteps> FirstFoundSteps(const EngineParts& engine) {
  return std::make_unique<AdversarialSchedule>(engine, /*random=*/false);
}

EngineOptions Delivering(bool deferred) {
  EngineOptions options;
  if (deferred) options.test = {.steps = FirstFoundSteps, .defer_delivery = true};
  return options;
}

}  // namespace hyperloop::softrnic
