// Transit: WQEs that have run at the requester and are not complete yet (Inflight), in order.
//
// SingleSteps deliver their requests to a queue pair of this engine (deferred delivery),
// or RemoteRequester sends them over a link. When the oldest WQE is acknowledged, its answer is
// copied to its place and its completion is posted. A WQE that needs no responder, or that failed,
// waits here for those before it.
//
// May call: KeyTable, CompletionQueues, Durability, ErrorState, ReadyList, QpTable, Responder,
// Retries, Dice.
#pragma once

#include <vector>

#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/dice.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/responder.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

class Transit {
 public:
  Transit(KeyTable& keys, CompletionQueues& cqs, Durability& durability, ErrorState& errors,
          ReadyList& ready, QpTable& qps, Responder& responder, Retries& retries, Dice& dice)
      : keys_(keys),
        cqs_(cqs),
        durability_(durability),
        errors_(errors),
        ready_(ready),
        qps_(qps),
        responder_(responder),
        retries_(retries),
        dice_(dice) {}

  // --- in
  // Whether the WQE must wait for answers to those before it: because of a fence, or of the limit
  // of READs and atomics, or of that of WQEs under way to a remote peer.
  static bool Blocked(const Qp& qp, const Wqe& wqe);
  // Takes in the WQE at the consumer index, whose request is now under way. Not kOk: it is
  // malformed, or its memory is not allowed.
  Outcome Accept(Qp& qp, const Wqe& wqe);
  // Takes in a WQE that needs no responder and ended with `outcome`. A WQE that failed stops the
  // queue until its error is reported.
  void Defer(Qp& qp, const Wqe& wqe, Outcome outcome);

  // --- on the way, to a queue pair of this engine
  // Whether the first request without an answer can have one now.
  bool Deliverable(Qp& qp);
  // Delivers that request. Deliverable must be true.
  void Deliver(Qp& qp);

  // --- out
  // The first WQE without an answer. Null: all have one.
  static Inflight* FirstUnanswered(Qp& qp);
  // Whether the oldest WQE counts as acknowledged: some WQE in transit has an answer or an error,
  // which acknowledges all requests before it.
  static bool Answered(const Qp& qp);
  // The answer to the oldest request arrives: copies its data to their place and posts its
  // completion.
  void Acknowledge(Qp& qp);
  // Ends the oldest WQE of a queue pair in error.
  void FlushOldest(Qp& qp);

 private:
  bool Gather(Qp& qp, const Inflight& entry, std::vector<std::byte>* payload);
  Outcome DeliverTo(Qp& peer, Inflight& entry, bool again);
  Outcome TakeAnswer(Qp& qp, Inflight& entry);

  KeyTable& keys_;
  CompletionQueues& cqs_;
  Durability& durability_;
  ErrorState& errors_;
  ReadyList& ready_;
  QpTable& qps_;
  Responder& responder_;
  Retries& retries_;
  Dice& dice_;
};

}  // namespace hyperloop::softrnic
