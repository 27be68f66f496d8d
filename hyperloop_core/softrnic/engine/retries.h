// Retries: requests without an answer: the peer has no receive posted (RNR), waits for its disk, or
// is not there. They stay at the head of their queue and are fetched and tried again, a bounded
// number of times if the queue pair says so.
//
// RNR: the peer's rnr_timer passes between two tries, and rnr_retry tries follow the first. But the
// queue is tried at once when a receive is there: nothing is gained by letting a replica wait for
// the rest of the timer. No answer: ack_timeout, and retry_count tries; tried at once when the peer
// is there again. Packets that are lost on a wire have the same end.
//
// A queue pair in error is looked at here too: receives that are posted to it come back flushed,
// and no doorbell tells of them.
//
// May call: QpTable, LookList, ReadyList, Clock, and what Responder, Durability and ErrorState tell
// of one queue pair.
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

  // Whether request number `request` of `qp` is tried again because of its peer's disk.
  static bool WaitedForDisk(const Qp& qp, uint64_t request) {
    return qp.timers.retry.why == kFlushing && qp.timers.retry.request == request;
  }
  // Request number `request` of `qp` had no end but `why`: kRnr, kNoAnswer or kFlushing. False: for
  // the last time.
  bool MayTryAgain(Qp& qp, Outcome why, uint64_t request);
  // The syndrome of a request that was tried for the last time.
  static uint8_t Exhausted(Outcome why);
  // The queue stops until its request is due.
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
