// AdversarialSchedule, for tests and models: runs the engine one step at a time. A random schedule
// chooses the step by chance among all that could happen next, a Pacer by its clock; any other
// schedule takes the first one that it finds.
//
// A step is one WQE of a queue. With deferred delivery it is also the delivery of a queue's oldest
// request without an answer, the acknowledgement of its oldest answer, or a WQE that is fetched
// again, as a retransmission does.
//
// May call: Doorbells, Retries, QpTable, ReadyList, KeyTable, Snapshots, Transit, Requester, Dice.
#pragma once

#include "softrnic/engine/dice.h"
#include "softrnic/engine/doorbells.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/transit.h"

namespace hyperloop::softrnic {

class AdversarialSchedule {
 public:
  AdversarialSchedule(const EngineOptions& options, Doorbells& doorbells, Retries& retries,
                      QpTable& qps, ReadyList& ready, KeyTable& keys, Snapshots& snapshots,
                      Transit& transit, Requester& requester, Dice& dice)
      : options_(options),
        doorbells_(doorbells),
        retries_(retries),
        qps_(qps),
        ready_(ready),
        keys_(keys),
        snapshots_(snapshots),
        transit_(transit),
        requester_(requester),
        dice_(dice) {}

  // Does one thing that could happen next. False: nothing can.
  bool Step();

 private:
  void RereadReceiveCounters();
  bool StepOnce();
  bool StepPaced();
  void Retransmit(Qp& qp);

  const EngineOptions& options_;
  Doorbells& doorbells_;
  Retries& retries_;
  QpTable& qps_;
  ReadyList& ready_;
  KeyTable& keys_;
  Snapshots& snapshots_;
  Transit& transit_;
  Requester& requester_;
  Dice& dice_;
};

}  // namespace hyperloop::softrnic
