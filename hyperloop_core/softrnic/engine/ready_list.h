// ReadyList: the queue pairs that have something to do. Clients take turns, and the queue pairs of
// one client take turns among themselves: however many queue pairs a client has, another client
// waits for one turn of it.
//
// A queue pair is listed at most once. Nothing here needs memory. Calls nothing of the engine.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

// A queue of accounts.
class AccountQueue {
 public:
  Account* head() const { return head_; }
  void Push(Account& account) {
    account.next_ready = nullptr;
    (tail_ != nullptr ? tail_->next_ready : head_) = &account;
    tail_ = &account;
  }
  // Takes the first one. The queue must not be empty.
  Account* Pop() {
    Account* const first = head_;
    head_ = first->next_ready;
    if (head_ == nullptr) tail_ = nullptr;
    return first;
  }
  void Remove(const Account& account);

 private:
  Account* head_ = nullptr;
  Account* tail_ = nullptr;
};

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
    for (const AccountQueue* queue : {&fresh_, &old_})
      for (const Account* account = queue->head(); account != nullptr;
           account = account->next_ready)
        for (Qp* qp = account->ready_head; qp != nullptr; qp = qp->next_ready) f(*qp);
  }

 private:
  AccountQueue fresh_;  // Account::Listed::kFresh
  AccountQueue old_;    // kOld
};

}  // namespace hyperloop::softrnic
