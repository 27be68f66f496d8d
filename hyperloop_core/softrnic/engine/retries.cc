#include "softrnic/engine/retries.h"

#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/responder.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kNever = ~0ull;

}  // namespace

bool Retries::MayTryAgain(Qp& qp, Outcome why, uint64_t request) {
  Retry& retry = qp.timers.retry;
  if (why == kFlushing) {  // the peer is there and at work; its disk may take as long as it likes
    retry = {.why = why, .request = request, .deadline = kNever};
    return true;
  }
  const bool rnr = why == kRnr;
  const bool first = retry.why != why || retry.request != request;
  if (first) {
    const uint8_t left = rnr ? qp.timers.rnr_retry : qp.timers.retry_count;
    retry = {.why = why, .left = left, .request = request};
    ++(rnr ? qp.count.rnr_stalls : qp.count.ack_stalls);
  } else if (!retry.due) {
    return true;  // its timer still runs
  } else {
    ++(rnr ? qp.count.rnr_retries : qp.count.ack_timeouts);
  }
  // An RNR refusal uses up a try at once. A try without an answer is used up when its timer has run
  // out.
  const bool counts = rnr ? qp.timers.rnr_retry != rnic::kForEver : !first;
  if (counts && retry.left-- == 0) return false;
  retry.due = false;
  uint64_t wait_ns = qp.timers.ack_timeout_ns;
  if (rnr) {
    Qp* const peer = qps_.Peer(qp);
    wait_ns = counts && peer != nullptr ? uint64_t{peer->timers.rnr_timer_us} * 1'000 : 0;
  }
  retry.deadline = wait_ns != 0 ? clock_.Now() + wait_ns : kNever;
  return true;
}

uint8_t Retries::Exhausted(Outcome why) {
  return why == kRnr ? MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR
                     : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
}

bool Retries::Due(Qp& qp) {
  Retry& retry = qp.timers.retry;
  Qp* const peer = qps_.Peer(qp);
  if (retry.why == kFlushing) return peer == nullptr || !Durability::Flushing(*peer);
  if (retry.why == kRnr ? peer == nullptr || Responder::ReceiveAvailable(*peer) : peer != nullptr)
    return true;
  if (retry.deadline == kNever || clock_.Now() < retry.deadline) return false;
  retry.due = true;
  return true;
}

bool Retries::LookAt(Qp& qp) {
  const bool flushes = qp.state == rnic::QpState::kError && qp.receive.exists;
  if (flushes && ErrorState::FindReceivesToFlush(qp)) {
    ready_.Add(qp);
    return true;
  }
  if (flushes || (qp.send.stall == Stall::kRetry && !Due(qp))) return false;
  looks_.Remove(qp);
  if (qp.send.stall != Stall::kRetry) return false;
  qp.send.stall = Stall::kNone;
  ready_.Add(qp);
  return true;
}

}  // namespace hyperloop::softrnic
