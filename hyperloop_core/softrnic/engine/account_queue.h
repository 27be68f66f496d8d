// AccountQueue: clients that wait for their turn at something, first come, first served. Nothing
// here needs memory. Calls nothing of the engine.
#pragma once

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

// `kNext`: the member of Account that links this queue. A client is in the queue at most once.
template <Account* Account::*kNext>
class AccountQueue {
 public:
  Account* head() const { return head_; }
  void Push(Account& account) {
    account.*kNext = nullptr;
    (tail_ != nullptr ? tail_->*kNext : head_) = &account;
    tail_ = &account;
  }
  // Takes the first one. The queue must not be empty.
  Account* Pop() {
    Account* const first = head_;
    head_ = first->*kNext;
    if (head_ == nullptr) tail_ = nullptr;
    return first;
  }
  // Takes `account` off the queue, if it is there.
  void Remove(const Account& account) {
    Account* before = nullptr;
    for (Account* at = head_; at != nullptr; before = at, at = at->*kNext) {
      if (at != &account) continue;
      (before != nullptr ? before->*kNext : head_) = account.*kNext;
      if (tail_ == &account) tail_ = before;
      return;
    }
  }

 private:
  Account* head_ = nullptr;
  Account* tail_ = nullptr;
};

}  // namespace hyperloop::softrnic
