// Responder: the responder's half of a queue pair: receives, remote writes, reads and atomics.
//
// Serve runs one decoded request, or a piece of one, and answers with its Outcome. Every check
// comes before the first byte is moved, so a refused request leaves memory as it was; a refusal
// puts the queue pair into the error state. kRnr and kFlushing change nothing that matters: the
// request comes again.
//
// May call: KeyTable, CompletionQueues, Durability, ErrorState, Turn.
#pragma once

#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/request.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

class Responder {
 public:
  Responder(const EngineOptions& options, KeyTable& keys, CompletionQueues& cqs,
            Durability& durability, ErrorState& errors, Turn& turn)
      : keys_(keys),
        cqs_(cqs),
        durability_(durability),
        errors_(errors),
        turn_(turn),
        cqe_scatter_bytes_(options.scatter_to_cqe ? 32 : 0),
        zero_byte_read_flushes_(options.zero_byte_read_flushes) {}

  [[gnu::always_inline]] Outcome Serve(Qp& qp, const Request& request) {
    switch (request.kind) {
      case Request::Kind::kSend:
        return Send(qp, request);
      case Request::Kind::kWrite:
        return Write(qp, request);
      case Request::Kind::kRead:
        return Read(qp, request);
      case Request::Kind::kAtomic:
        break;
    }
    return Atomic(qp, request);
  }
  // Before the first piece of a long message: the checks of the whole, and (`places`) the bytes
  // that it reads or writes. The queue pair's own rights are checked with each piece, or now too.
  enum class Rights { kWithEachPiece, kNow };
  Outcome Prepare(Qp& qp, const Request& request, Rights rights, SegmentList* places);
  // True if a receive is posted (and enabled). The producer counter lives in the client's doorbell
  // record: it is read when the last value read is used up.
  static bool ReceiveAvailable(Qp& qp);
  // The queue pair fails. Returns the syndrome.
  Outcome Refuse(Qp& qp, uint8_t syndrome);

 private:
  Outcome Send(Qp& qp, const Request& request);
  Outcome Write(Qp& qp, const Request& request);
  Outcome Read(Qp& qp, const Request& request);
  Outcome Atomic(Qp& qp, const Request& request);
  [[gnu::cold]] Outcome SendPiece(Qp& qp, const Request& request);
  [[gnu::cold]] Outcome SendIntoCqe(Qp& qp, const Request& request);
  // Not kOk: the READ waits for its flush, or fails with it.
  Outcome FlushFirst(Qp& qp, bool again);
  Outcome ResolveReceive(Qp& qp, uint64_t bytes, SegmentList* to);
  Outcome FailReceive(Qp& qp, uint8_t local_syndrome, uint8_t remote_syndrome);
  void CompleteSend(Qp& qp, const Request& request, uint8_t op_own_bits);

  KeyTable& keys_;
  CompletionQueues& cqs_;
  Durability& durability_;
  ErrorState& errors_;
  Turn& turn_;
  const uint64_t cqe_scatter_bytes_;  // receives of so many bytes at most land in their CQE
  const bool zero_byte_read_flushes_;
};

}  // namespace hyperloop::softrnic
