// QpTable owns the queue pairs of all clients, by number, and knows which of them are connected to
// each other within this engine. Calls nothing of the engine.
#pragma once

#include <memory>

#include "softrnic/engine/objects.h"
#include "softrnic/engine/request.h"
#include "softrnic/engine/tables.h"

namespace hyperloop::softrnic {

inline constexpr uint32_t kQpSlotBits = 14;
inline constexpr size_t kMaxQps = size_t{1} << kQpSlotBits;

// How many requests the queue pair has run as a requester.
inline uint64_t RequestsRun(const Qp& qp) {
  return qp.count.sends + qp.count.writes + qp.count.reads + qp.count.atomics;
}

// A request of `qp` ran to its end. `bytes`: how many it moved that were not counted before.
inline void CountRequest(Qp& qp, Request::Kind kind, uint64_t bytes) {
  switch (kind) {
    case Request::Kind::kSend:
      ++qp.count.sends, qp.count.bytes_sent += bytes;
      break;
    case Request::Kind::kWrite:
      ++qp.count.writes, qp.count.bytes_sent += bytes;
      break;
    case Request::Kind::kRead:
      ++qp.count.reads, qp.count.bytes_received += bytes;
      break;
    case Request::Kind::kAtomic:
      ++qp.count.atomics, qp.count.bytes_sent += 16;  // its operands
      break;
  }
}

class QpTable {
 public:
  // Null: there is none.
  Qp* Find(uint32_t qpn) const { return qps_.Find(qpn); }
  // 0: the table is full.
  uint32_t Insert(std::unique_ptr<Qp> qp) { return qps_.Insert(std::move(qp)); }
  void Erase(uint32_t qpn) { qps_.Erase(qpn); }
  template <class F>
  void ForEach(F&& f) {
    qps_.ForEach(std::forward<F>(f));
  }

  // The queue pair in this engine that `qp` is connected to, if that one is connected back and
  // receives. Null: nobody answers.
  Qp* Peer(Qp& qp) {
    Qp* peer = qp.peer.cached != nullptr ? qp.peer.cached : FindPeer(qp);
    if (peer == nullptr || (peer->state != rnic::QpState::kReadyToSend &&
                            peer->state != rnic::QpState::kReadyToReceive)) [[unlikely]]
      return nullptr;
    return peer;
  }
  // Ends the connection of `qp`. If requests had passed between it and its peer, nobody answers the
  // peer until that is reset too.
  void Disconnect(Qp& qp);

 private:
  // The queue pair that `qp` is connected to, if that one is connected back; kept in
  // Qp::Peer::cached until either changes (Disconnect).
  Qp* FindPeer(Qp& qp);

  NumberTable<Qp, kQpSlotBits> qps_;
};

}  // namespace hyperloop::softrnic
