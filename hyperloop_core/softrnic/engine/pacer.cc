#include "softrnic/engine/pacer.h"

#include "hyperloop/core/invariant.h"
#include "softrnic/engine/doorbells.h"
#include "softrnic/engine/engine.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/retries.h"

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

class PacedSteps final : public SingleSteps {
 public:
  PacedSteps(const EngineParts& engine, Pacer& pacer) : engine_(engine), pacer_(pacer) {
    HL_INVARIANT(!engine.options.test.defer_delivery);  // no step of a Pacer delivers
  }

  bool Step() override {
    Look();
    if (StepOnce()) return true;
    Look();
    return StepOnce();
  }

 private:
  void Look() {
    engine_.doorbells.Collect();
    engine_.retries.LookAtSome(~size_t{0});
  }
  bool StepOnce();

  const EngineParts engine_;
  Pacer& pacer_;
};

bool PacedSteps::StepOnce() {
  const auto look = [this](const Qp& qp) { pacer_.Look(PacedQueue(qp)); };
  for (;;) {
    engine_.qps.ForEach(look);
    Qp* first = nullptr;
    uint64_t runs_at = 0;
    engine_.ready.ForEach([&](Qp& qp) {
      const uint64_t at = pacer_.RunsAt(PacedQueue(qp));
      if (first == nullptr || at < runs_at) first = &qp, runs_at = at;
    });
    if (first == nullptr || !pacer_.Begin(PacedQueue(*first), runs_at)) return false;
    const uint16_t consumer = first->send.consumer;
    engine_.ready.Remove(*first);
    const size_t steps = engine_.requester.RunQueue(*first, 1);
    pacer_.End(first->send.consumer != consumer);
    engine_.qps.ForEach(look);
    if (steps == 0) continue;  // it had nothing to run
    engine_.keys.ForgetFault();
    return true;
  }
}

}  // namespace

MakeSingleSteps PacedBy(Pacer* pacer) {
  return
      [pacer](const EngineParts& engine) { return std::make_unique<PacedSteps>(engine, *pacer); };
}

}  // namespace hyperloop::softrnic
