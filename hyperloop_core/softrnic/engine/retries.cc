// Requests without an answer: the peer has no receive posted (RNR), waits for its disk, or is not
// there. They stay at the head of their queue and are fetched and tried again, a bounded number of
// times if the queue pair says so.
//
// RNR: the peer's rnr_timer passes between two tries, and rnr_retry tries follow the first. But the
// queue is tried at once when a receive is there: nothing is gained by letting a replica wait for
// the rest of the timer. No answer: ack_timeout, and retry_count tries; tried at once when the peer
// is there again. Packets that are lost on a wire have the same end.
//
// A queue pair in error is looked at here too: receives that are posted to it come back flushed,
// and no doorbell tells of them.
#include <chrono>

#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kNever = ~0ull;
constexpr uint32_t kForEver = 7;  // rnr_retry

}  // namespace

// Request number `request` of `qp` had no end but `why`: kRnr, kNoAnswer or kFlushing. False: for
// the last time.
bool Engine::Impl::MayTryAgain(Qp& qp, Outcome why, uint64_t request) {
  Retry& retry = qp.retry;
  if (why == kFlushing) {  // the peer is there and at work: as long as its disk takes
    retry = {.why = why, .request = request, .deadline = kNever};
    return true;
  }
  const bool rnr = why == kRnr;
  const bool first = retry.why != why || retry.request != request;
  if (first) {
    const uint8_t left = rnr ? qp.rnr_retry : qp.retry_count;
    retry = {.why = why, .left = left, .request = request};
    ++(rnr ? qp.count.rnr_stalls : qp.count.ack_stalls);
  } else if (!retry.due) {
    return true;  // its timer goes on
  } else {
    ++(rnr ? qp.count.rnr_retries : qp.count.ack_timeouts);
  }
  // A refusal counts at once, silence when its time is over.
  const bool counts = rnr ? qp.rnr_retry != kForEver : !first;
  if (counts && retry.left-- == 0) return false;
  retry.due = false;
  uint64_t wait_ns = qp.ack_timeout_ns;
  if (rnr) {
    Qp* const peer = qps.Peer(qp);
    wait_ns = counts && peer != nullptr ? uint64_t{peer->rnr_timer_us} * 1'000 : 0;
  }
  retry.deadline = wait_ns != 0 ? clock.Now() + wait_ns : kNever;
  return true;
}

uint8_t Engine::Impl::Exhausted(Outcome why) {
  return why == kRnr ? MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR
                     : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
}

// Whether a request that waits is to be tried again now.
bool Engine::Impl::RetryDue(Qp& qp) {
  Qp* const peer = qps.Peer(qp);
  if (qp.retry.why == kFlushing) return peer == nullptr || !Durability::Flushing(*peer);
  if (qp.retry.why == kRnr ? peer == nullptr || Responder::ReceiveAvailable(*peer)
                           : peer != nullptr)
    return true;
  if (qp.retry.deadline == kNever || clock.Now() < qp.retry.deadline) return false;
  qp.retry.due = true;
  return true;
}

Engine::Impl::Next Engine::Impl::StallForRetry(Qp& qp, const Wqe& wqe, Outcome why) {
  if (!MayTryAgain(qp, why, qp.count.wqes_executed)) {
    Fail(qp, wqe, Exhausted(why));
    return Next::kStop;
  }
  qp.stall = Stall::kRetry;
  looks.Add(qp);
  return Next::kStop;
}

// True if it has something to do now. It is taken from its list if it needs no more looks.
bool Engine::Impl::LookAt(Qp& qp) {
  const bool flushes = qp.state == rnic::QpState::kError && qp.has_rq;
  if (flushes && ErrorState::FindReceivesToFlush(qp)) {
    ready.Add(qp);
    return true;
  }
  if (flushes || (qp.stall == Stall::kRetry && !RetryDue(qp))) return false;
  looks.Remove(qp);
  if (qp.stall != Stall::kRetry) return false;
  qp.stall = Stall::kNone;
  ready.Add(qp);
  return true;
}

bool Engine::Impl::RetryStalled(size_t most) {
  return looks.LookAtSome(most, [this](Qp& qp) { return LookAt(qp); });
}

}  // namespace hyperloop::softrnic
