#include "softrnic/engine/error_state.h"

#include <algorithm>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {

void ErrorState::Enter(Qp& qp) {
  if (qp.state == rnic::QpState::kError) return;
  qp.state = rnic::QpState::kError;
  Waiters::Remove(qp);
  qp.send.stall = Stall::kNone;
  qp.timers.retry = {};
  qp.send.resume = false;
  qp.send.part.reset();
  if (qp.peer.remote != nullptr) link_work_.Stop(qp);
  qp.receive.producer = qp.receive.consumer;
  if (qp.receive.exists) {
    FindReceivesToFlush(qp);
    looks_.Add(qp);
  }
  ready_.Add(qp);
}

bool ErrorState::FindReceivesToFlush(Qp& qp) {
  Qp::Receive& receive = qp.receive;
  const auto posted =
      static_cast<uint16_t>(LoadDoorbellRecord(receive.dbrec + rnic::kReceiveCounterOffset));
  const auto more = static_cast<uint16_t>(posted - receive.producer);
  if (more == 0 || more > 0x8000) return false;
  receive.producer = posted;
  receive.flush_left = static_cast<uint16_t>(
      std::min<uint32_t>(uint32_t{receive.flush_left} + more, receive.mask + 1));
  return true;
}

}  // namespace hyperloop::softrnic
