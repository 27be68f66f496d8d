// Waiters: the send queues that a WAIT holds, linked into the completion queue that they wait for.
// Nothing here needs memory. Calls nothing of the engine.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

struct Waiters {
  // Qp::Wait::cq says which CQ has the queue among its waiters. A queue is never listed twice:
  // otherwise its destruction would leave a pointer to it in a CQ.
  static void Add(Qp& qp, Cq& cq) {
    Remove(qp);
    qp.wait.cq = &cq;
    qp.wait.next = cq.waiters;
    if (cq.waiters != nullptr) cq.waiters->wait.prev = &qp;
    cq.waiters = &qp;
  }
  static void Remove(Qp& qp) {
    if (qp.wait.cq == nullptr) return;
    if (qp.wait.prev != nullptr) {
      qp.wait.prev->wait.next = qp.wait.next;
    } else {
      qp.wait.cq->waiters = qp.wait.next;
    }
    if (qp.wait.next != nullptr) qp.wait.next->wait.prev = qp.wait.prev;
    qp.wait.cq = nullptr;
    qp.wait.next = qp.wait.prev = nullptr;
  }
};

}  // namespace hyperloop::softrnic
