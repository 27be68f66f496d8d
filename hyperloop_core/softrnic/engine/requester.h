// Requester: the requester's half of a queue pair. It fetches, decodes and executes the WQEs of a
// send queue, and flushes what is left of a queue pair in error.
//
// Cost of a WQE on the fast path (no SingleSteps, no deferred delivery): one 16 B header
// load and compare against the expected index and queue number, one switch, one table load per
// local key, one hash probe per remote key, one copy from source to destination, at most one CQE
// store. No allocation, no virtual call, no system call.
//
// Long transfers are in long_transfers.cc.
//
// May call: KeyTable, CompletionQueues, Durability, ErrorState, ReadyList, QpTable, Turn, Waiters,
// Responder, Retries, Snapshots, Transit, RemoteRequester.
#pragma once

#include <array>

#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/remote_requester.h"
#include "softrnic/engine/responder.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/transit.h"
#include "softrnic/engine/turn.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

class Requester {
 public:
  Requester(const EngineOptions& options, KeyTable& keys, CompletionQueues& cqs,
            Durability& durability, ErrorState& errors, ReadyList& ready, QpTable& qps, Turn& turn,
            Responder& responder, Retries& retries, Snapshots& snapshots, Transit& transit,
            RemoteRequester& remote)
      : keys_(keys),
        cqs_(cqs),
        durability_(durability),
        errors_(errors),
        ready_(ready),
        qps_(qps),
        turn_(turn),
        responder_(responder),
        retries_(retries),
        snapshots_(snapshots),
        transit_(transit),
        remote_(remote),
        header_mask_((options.test.check_wqe_index ? 0xffffull << 40 : 0) |
                     (options.test.check_qpn ? 0xffffffull << 8 : 0)),
        overrun_blocks_(options.test.check_cross_channel ? 0 : 4) {}

  // Runs the send queue until it stalls, is empty, has had its turn, or has taken `budget` steps.
  // Returns the steps taken.
  size_t RunQueue(Qp& qp, size_t budget);
  // Moves a send queue's producer index forward (cyclic maximum) and lets it run.
  void Advance(Qp& qp, uint16_t index);

 private:
  enum class Next { kMore, kStop };
  Next ExecuteOne(Qp& qp);
  bool Decode(Qp& qp, const std::byte* base, Wqe* wqe);
  Outcome RunRequest(Qp& qp, const Wqe& wqe, uint32_t* bytes);
  template <Request::Kind kKind>
  Outcome RunRequestOf(Qp& qp, const Wqe& wqe, uint32_t* bytes);
  Next Resume(Qp& qp);
  Next ExecuteWait(Qp& qp, const Wqe& wqe);
  Outcome ExecuteEnable(Qp& qp, const Wqe& wqe);
  Next ExecuteDeferred(Qp& qp, const Wqe& wqe);
  Next StallForRetry(Qp& qp, const Wqe& wqe, Outcome why);
  void Complete(Qp& qp, const Wqe& wqe, uint32_t bytes);
  // Completes a WQE. kStop: the completion has overrun its CQ, which put the queue into error.
  Next CompleteAndGoOn(Qp& qp, const Wqe& wqe, uint32_t bytes) {
    Complete(qp, wqe, bytes);
    return qp.state == rnic::QpState::kReadyToSend ? Next::kMore : Next::kStop;
  }
  void Fail(Qp& qp, const Wqe& wqe, uint8_t syndrome);
  size_t FlushStep(Qp& qp);
  // --- long_transfers.cc
  Outcome StartParts(Qp& qp, Qp& peer, const Wqe& wqe, const Request& request);
  Next ContinueParts(Qp& qp);
  Outcome NextPart(Qp& qp, Part& part, bool* last);

  KeyTable& keys_;
  CompletionQueues& cqs_;
  Durability& durability_;
  ErrorState& errors_;
  ReadyList& ready_;
  QpTable& qps_;
  Turn& turn_;
  Responder& responder_;
  Retries& retries_;
  Snapshots& snapshots_;
  Transit& transit_;
  RemoteRequester& remote_;
  const uint64_t header_mask_;  // bits of a WQE's first 8 bytes (host order) that are checked
  // How many WQEBBs a managed queue runs past its enabled index: 0, unless the device is broken on
  // purpose (EngineTestHooks::check_cross_channel).
  const uint16_t overrun_blocks_;
  // A WQE that goes around its ring's end, copied together.
  alignas(64) std::array<std::byte, rnic::kMaxWqeBytes> wrapped_;
};

}  // namespace hyperloop::softrnic
