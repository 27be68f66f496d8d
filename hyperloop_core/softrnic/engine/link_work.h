// LinkWork: which queue pairs with a remote peer have something to do, and how much of the engine's
// memory held requests take. The lists contain numbers, not pointers, because a queue pair may be
// destroyed while it is listed.
//
// Calls nothing of the engine.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "softrnic/engine/account_queue.h"
#include "softrnic/engine/objects.h"

namespace hyperloop::softrnic {

class LinkWork {
 public:
  // True if timers, held requests or late acknowledgements need a look now and then.
  bool NeedsLooks() const { return !watched_.empty() || !holding_.empty() || !acks_.empty(); }

  // --- queue pairs that have packets for a link
  void AddPump(Qp& qp) {
    if (qp.peer.remote->pumping) return;
    Account& account = *qp.account;
    account.to_pump.push_back(qp.qpn);
    qp.peer.remote->pumping = true;
    if (account.to_pump.size() == 1) pumping_.Push(account);
    ++pumps_;
  }
  size_t pumps() const { return pumps_; }
  // Takes the one whose turn it is: clients take turns, and the queue pairs of each among
  // themselves. There must be one.
  uint32_t NextPump() {
    Account& account = *pumping_.Pop();
    const uint32_t qpn = account.to_pump.front();
    account.to_pump.pop_front();
    if (!account.to_pump.empty()) pumping_.Push(account);
    --pumps_;
    return qpn;
  }
  // Takes a client off the lists that is about to be destroyed.
  void Forget(Account& account) {
    if (account.to_pump.empty()) return;
    pumping_.Remove(account);
    pumps_ -= account.to_pump.size();
    account.to_pump.clear();
  }

  // --- queue pairs that wait for room on their link
  void AddWaiting(Qp& qp) {
    Remote& r = *qp.peer.remote;
    if (!r.waiting) room_wanted_[r.link].push_back(qp.qpn);
    r.waiting = true;
  }
  // Takes the queue pairs that wait for `link`.
  std::vector<uint32_t> TakeWaiting(LinkId link) {
    const auto wanted = room_wanted_.find(link);
    if (wanted == room_wanted_.end()) return {};
    return std::exchange(wanted->second, {});
  }
  void ForgetWaiting(LinkId link) { room_wanted_.erase(link); }
  void ForgetWaiting(Qp& qp) {
    Remote& r = *qp.peer.remote;
    if (std::exchange(r.waiting, false)) std::erase(room_wanted_[r.link], qp.qpn);
  }

  // --- queue pairs whose timers run
  void Watch(Qp& qp) {
    if (qp.peer.remote->listed) return;
    qp.peer.remote->listed = true;
    watched_.push_back(qp.qpn);
  }
  bool AnyWatched() const { return !watched_.empty(); }
  // Calls `stays(qpn)` for each queue pair, and takes those for which it returns false off the
  // list.
  template <class F>
  void ForWatched(F&& stays) {
    for (size_t i = 0; i < watched_.size();) {
      if (stays(watched_[i])) {
        ++i;
        continue;
      }
      watched_[i] = watched_.back();
      watched_.pop_back();
    }
  }

  // --- queue pairs that owe an acknowledgement (Remote::ack_due)
  void AddAck(Qp& qp) {
    if (qp.peer.remote->ack_listed) return;
    acks_.push_back(qp.qpn);
    qp.peer.remote->ack_listed = true;
  }
  bool AnyAck() const { return !acks_.empty(); }
  // Calls `stays(qpn)` for each, and takes those for which it returns false off the list.
  template <class F>
  void ForAcks(F&& stays) {
    std::erase_if(acks_, [&stays](uint32_t qpn) { return !stays(qpn); });
  }

  // --- queue pairs that hold requests behind a READ which waits for a disk (Remote::held)
  void AddHolding(uint32_t qpn) { holding_.push_back(qpn); }
  size_t holding() const { return holding_.size(); }
  // Takes the first one. There must be one.
  uint32_t NextHolding() {
    const uint32_t qpn = holding_.front();
    holding_.pop_front();
    return qpn;
  }
  uint64_t held_bytes() const { return held_bytes_; }
  void AddHeldBytes(uint64_t bytes) { held_bytes_ += bytes; }
  void SubHeldBytes(uint64_t bytes) { held_bytes_ -= bytes; }

  // `qp` sends no more requests and drops what it kept for its peer. If a request of the peer
  // failed, later ones still hear why (Remote::nak_syndrome).
  void Stop(Qp& qp);

 private:
  AccountQueue<&Account::next_pump> pumping_;  // those whose Account::to_pump is not empty
  size_t pumps_ = 0;
  std::map<LinkId, std::vector<uint32_t>> room_wanted_;
  std::vector<uint32_t> watched_;
  std::vector<uint32_t> acks_;
  std::deque<uint32_t> holding_;
  uint64_t held_bytes_ = 0;
};

inline void LinkWork::Stop(Qp& qp) {
  Remote& r = *qp.peer.remote;
  r.phase = Remote::Phase::kStopped;
  ForgetWaiting(qp);
  r.sent.clear();
  r.sent_bytes = 0;
  r.next_sent = 0;
  r.kept.clear();
  r.kept_bytes = 0;
  for (const HeldRequest& each : r.held) held_bytes_ -= each.bytes;
  r.held.clear();
}

}  // namespace hyperloop::softrnic
