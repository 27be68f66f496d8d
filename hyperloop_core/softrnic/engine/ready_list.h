// ReadyList: the queue pairs that have something to do. Clients take turns, and the queue pairs of
// one client take turns among themselves: however many queue pairs a client has, another client
// waits for one turn of it.
//
// A queue pair is listed at most once. Nothing here needs memory. Calls nothing of the engine.
#pragma once

#include "softrnic/engine/account_queue.h"
#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

class ReadyList {
 public:
  void Add(Qp& qp) {
    if (qp.ready) return;
    qp.ready = true;
    qp.next_ready = nullptr;
    Account& account = *qp.account;
    if (account.ready_head != nullptr) {
      account.ready_tail->next_ready = &qp;
    } else {
      account.ready_head = &qp;
      if (account.listed == Account::Listed::kNo) {
        account.listed = Account::Listed::kFresh;
        fresh_.Push(account);
      }
    }
    account.ready_tail = &qp;
  }
  void Remove(Qp& qp);
  // Takes the queue pair whose turn it is off the list. Null: none is ready.
  Qp* Next();
  // Takes a client off the list that is about to be destroyed. None of its queue pairs is listed.
  void Forget(Account& account);
  // `f` must not change the list.
  template <class F>
  void ForEach(F&& f) const {
    for (const Accounts* queue : {&fresh_, &old_})
      for (const Account* account = queue->head(); account != nullptr;
           account = account->next_ready)
        for (Qp* qp = account->ready_head; qp != nullptr; qp = qp->next_ready) f(*qp);
  }

 private:
  using Accounts = AccountQueue<&Account::next_ready>;
  Accounts fresh_;  // Account::Listed::kFresh
  Accounts old_;    // kOld
};

}  // namespace hyperloop::softrnic
