// ErrorState: how a queue pair enters the error state. From then on it executes and receives
// nothing more; what is posted to it comes back flushed when its turn comes (Requester).
//
// Enter needs no memory. May call: Waiters, LinkWork, LookList, ReadyList.
#pragma once

#include "softrnic/engine/link_work.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/ready_list.h"

namespace hyperloop::softrnic {

class ErrorState {
 public:
  ErrorState(LinkWork& link_work, LookList& looks, ReadyList& ready)
      : link_work_(link_work), looks_(looks), ready_(ready) {}

  // Does nothing if `qp` is in the error state already.
  void Enter(Qp& qp);
  // Counts the receives that were posted since the last look at the counter, but never more than
  // the ring holds. False: none was posted.
  static bool FindReceivesToFlush(Qp& qp);

 private:
  LinkWork& link_work_;
  LookList& looks_;
  ReadyList& ready_;
};

}  // namespace hyperloop::softrnic
