// ErrorState: how a queue pair enters the error state. Nothing more of it is executed or received
// then; what is posted comes back flushed when its turn comes (Requester).
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

  // Nothing changes if it is there already.
  void Enter(Qp& qp);
  // Counts the receives posted since the last look at the counter; of a counter that runs ahead of
  // the ring, no more than the ring holds. False: none.
  static bool FindReceivesToFlush(Qp& qp);

 private:
  LinkWork& link_work_;
  LookList& looks_;
  ReadyList& ready_;
};

}  // namespace hyperloop::softrnic
