#include "softrnic/engine/ready_list.h"

namespace hyperloop::softrnic {

void ReadyList::Remove(Qp& qp) {
  if (!qp.ready) return;
  qp.ready = false;
  Account& account = *qp.account;
  Qp* before = nullptr;
  for (Qp* at = account.ready_head; at != nullptr; before = at, at = at->next_ready) {
    if (at != &qp) continue;
    (before != nullptr ? before->next_ready : account.ready_head) = qp.next_ready;
    if (account.ready_tail == &qp) account.ready_tail = before;
    break;
  }
  qp.next_ready = nullptr;
}

Qp* ReadyList::Next() {
  for (;;) {
    Accounts& from = fresh_.head() != nullptr ? fresh_ : old_;
    if (from.head() == nullptr) return nullptr;
    Account& account = *from.Pop();
    Qp* const qp = account.ready_head;
    if (qp == nullptr) {
      account.listed = Account::Listed::kNo;
      continue;
    }
    account.ready_head = qp->next_ready;
    qp->ready = false;
    if (account.ready_head == nullptr && fresh_.head() == nullptr && old_.head() == nullptr) {
      account.listed = Account::Listed::kNo;  // nobody else waits: no round to wait for
    } else {
      account.listed = Account::Listed::kOld;
      old_.Push(account);
    }
    return qp;
  }
}

void ReadyList::Forget(Account& account) {
  if (account.listed == Account::Listed::kNo) return;
  (account.listed == Account::Listed::kFresh ? fresh_ : old_).Remove(account);
  account.listed = Account::Listed::kNo;
}

}  // namespace hyperloop::softrnic
