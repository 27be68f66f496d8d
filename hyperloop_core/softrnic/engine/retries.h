// Retries: requests without an answer, whose peer has no receive posted (RNR), waits for its disk,
// or is not there. Such a request stays at the head of its queue, and is fetched and tried again.
// The queue pair may bound the number of tries.
//
// RNR: the peer's rnr_timer passes between two tries, and rnr_retry tries follow the first one. If
// a receive is posted before, the request is tried at once. No answer: ack_timeout passes between
// two tries, and retry_count tries follow the first one. If the peer is there before, the request
// is tried at once. A request whose packets are lost on a wire ends in the same way.
//
// Queue pairs in error are looked at here too, because no doorbell tells of receives that are
// posted to them; these come back flushed.
//
// May call: QpTable, LookList, ReadyList, Clock, and the static functions of Responder, Durability
// and ErrorState.
#pragma once

#include "softrnic/engine/clock.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

class Retries {
 public:
  Retries(QpTable& qps, LookList& looks, ReadyList& ready, const Clock& clock)
      : qps_(qps), looks_(looks), ready_(ready), clock_(clock) {}

  // Whether request number `request` of `qp` was tried before and waited for the peer's disk.
  static bool WaitedForDisk(const Qp& qp, uint64_t request) {
    return qp.timers.retry.why == kFlushing && qp.timers.retry.request == request;
  }
  // Notes that a try of request number `request` of `qp` ended in `why`: kRnr, kNoAnswer or
  // kFlushing. False: no try is left.
  bool MayTryAgain(Qp& qp, Outcome why, uint64_t request);
  // The syndrome of a request that was tried for the last time.
  static uint8_t Exhausted(Outcome why);
  // Stops the queue until its request is due.
  void Wait(Qp& qp) {
    qp.send.stall = Stall::kRetry;
    looks_.Add(qp);
  }
  // Whether a request that waits is to be tried again now.
  bool Due(Qp& qp);
  // Looks at some queue pairs (LookList::LookAtSome). True if one has something to do now.
  bool LookAtSome(size_t most) {
    return looks_.LookAtSome(most, [this](Qp& qp) { return LookAt(qp); });
  }

 private:
  // True if it has something to do now. It is taken from its list if it needs no more looks.
  bool LookAt(Qp& qp);

  QpTable& qps_;
  LookList& looks_;
  ReadyList& ready_;
  const Clock& clock_;
};

}  // namespace hyperloop::softrnic
