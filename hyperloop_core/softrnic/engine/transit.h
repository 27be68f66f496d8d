// Transit: WQEs that have run at the requester and are not complete yet (Inflight), in order.
//
// Their requests travel: to a queue pair of this engine when the schedule delivers them (deferred
// delivery), or by a link (RemoteRequester). An answer is taken, and the completion made, when the
// oldest is acknowledged. A WQE that needs no responder, and one that failed, wait here for those
// before them.
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
  // Whether the WQE has to wait for answers to those before it: a fence, the limit of READs and
  // atomics, enough under way to a remote peer.
  static bool Blocked(const Qp& qp, const Wqe& wqe);
  // The request of the WQE at the consumer index sets out. Not kOk: it is malformed, or its memory
  // is not allowed.
  Outcome Accept(Qp& qp, const Wqe& wqe);
  // A WQE that needs no responder, done with `outcome`. A failed one stops the queue until its turn
  // comes.
  void Defer(Qp& qp, const Wqe& wqe, Outcome outcome);

  // --- on the way, to a queue pair of this engine
  // Whether the first request without an answer can have one now.
  bool Deliverable(Qp& qp);
  // Not without one that is deliverable.
  void Deliver(Qp& qp);

  // --- out
  // The first without an answer; null: all have one.
  static Inflight* FirstUnanswered(Qp& qp);
  // Whether the peer has sent something that acknowledges all before it.
  static bool Answered(const Qp& qp);
  // The oldest request's answer arrives: its data is placed, its completion made.
  void Acknowledge(Qp& qp);
  // The oldest WQE of a queue pair in error ends.
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
