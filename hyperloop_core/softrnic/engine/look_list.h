// LookList: the queue pairs that are looked at now and then, a few each turn, because no doorbell
// tells when they have something to do. One part of the list waits for a receive, a peer or its
// disk (some queue pairs in it no longer wait). The other part is in error and flushes the receives
// that are posted to it.
//
// Adding and removing need no memory, because queue pairs also fail and end when there is none.
// Calls nothing of the engine.
#pragma once

#include <algorithm>
#include <vector>

#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

class LookList {
 public:
  // `most`: the most queue pairs that an engine has.
  explicit LookList(size_t most) {
    waiting_.reserve(most);
    broken_.reserve(most);
  }
  bool empty() const { return waiting_.empty() && broken_.empty(); }
  // True if a request waits to be tried again.
  bool AnyWaits() const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [](const Qp* qp) { return qp->send.stall == Stall::kRetry; });
  }
  // Lists `qp` in the part that its state says, unless it is there already.
  void Add(Qp& qp) {
    std::vector<Qp*>& list = qp.state == rnic::QpState::kError ? broken_ : waiting_;
    if (qp.look_index < list.size() && list[qp.look_index] == &qp) return;
    Remove(qp);  // it may be in the other part
    qp.look_index = static_cast<uint32_t>(list.size());
    list.push_back(&qp);
  }
  void Remove(Qp& qp) {
    if (qp.look_index == Qp::kNotListed) return;
    const bool waits = qp.look_index < waiting_.size() && waiting_[qp.look_index] == &qp;
    std::vector<Qp*>& list = waits ? waiting_ : broken_;
    list[qp.look_index] = list.back();
    list[qp.look_index]->look_index = qp.look_index;
    list.pop_back();
    qp.look_index = Qp::kNotListed;
  }
  // Calls `look(qp)`, which may remove `qp`, for at most `most` of each part, so that those of one
  // client cost the others no more than that. True if it returned true for any.
  template <class F>
  bool LookAtSome(size_t most, F&& look) {
    const bool waiting = LookAtSome(waiting_, &next_waiting_, most, look);
    const bool broken = LookAtSome(broken_, &next_broken_, most, look);
    return waiting || broken;
  }

 private:
  template <class F>
  static bool LookAtSome(std::vector<Qp*>& list, size_t* next, size_t most, F& look) {
    bool any = false;
    for (size_t n = std::min(most, list.size()); n != 0 && !list.empty(); --n) {
      if (*next >= list.size()) *next = 0;
      Qp& qp = *list[*next];
      any |= look(qp);
      // If `look` removed `qp`, another queue pair has its place and is next.
      if (*next < list.size() && list[*next] == &qp) ++*next;
    }
    return any;
  }

  std::vector<Qp*> waiting_;
  std::vector<Qp*> broken_;
  size_t next_waiting_ = 0;
  size_t next_broken_ = 0;
};

}  // namespace hyperloop::softrnic
