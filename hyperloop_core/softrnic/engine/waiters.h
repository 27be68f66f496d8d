// Waiters: the send queues that a WAIT holds, linked into the completion queue that they wait for.
// Nothing here needs memory. Calls nothing of the engine.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

struct Waiters {
  // Qp::wait_cq says whether a queue is among the waiters of a CQ: it never is twice, or its end
  // would leave the CQ a pointer to it.
  static void Add(Qp& qp, Cq& cq) {
    Remove(qp);
    qp.wait_cq = &cq;
    qp.next_waiter = cq.waiters;
    if (cq.waiters != nullptr) cq.waiters->prev_waiter = &qp;
    cq.waiters = &qp;
  }
  static void Remove(Qp& qp) {
    if (qp.wait_cq == nullptr) return;
    if (qp.prev_waiter != nullptr) {
      qp.prev_waiter->next_waiter = qp.next_waiter;
    } else {
      qp.wait_cq->waiters = qp.next_waiter;
    }
    if (qp.next_waiter != nullptr) qp.next_waiter->prev_waiter = qp.prev_waiter;
    qp.wait_cq = nullptr;
    qp.next_waiter = qp.prev_waiter = nullptr;
  }
};

}  // namespace hyperloop::softrnic
