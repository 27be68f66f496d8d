// Responder: the responder's half of a queue pair. It runs the peer's SENDs, WRITEs, READs and
// atomics.
//
// Serve runs one decoded request, or a piece of one, and returns its Outcome. Every check comes
// before the first byte is moved, so a refused request leaves memory as it was (unless a file was
// truncated meanwhile). A refusal puts the queue pair into the error state. With kRnr and kFlushing
// no byte was moved, and the request comes again.
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
        cqe_scatter_bytes_(options.test.scatter_to_cqe ? 32 : 0),
        zero_byte_read_flushes_(options.test.zero_byte_read_flushes) {}

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
  // Checks a long message as a whole before its first piece is served. `*places` becomes the memory
  // that it reads or writes. `rights` says when the queue pair's own rights are checked.
  enum class Rights { kWithEachPiece, kNow };
  Outcome Prepare(Qp& qp, const Request& request, Rights rights, SegmentList* places);
  // True if a receive is posted (and enabled). The producer counter in the client's doorbell record
  // is read only when no receive is left below its last value.
  static bool ReceiveAvailable(Qp& qp);
  // Puts the queue pair into the error state. Returns `syndrome`.
  Outcome Refuse(Qp& qp, uint8_t syndrome);

 private:
  Outcome Send(Qp& qp, const Request& request);
  Outcome Write(Qp& qp, const Request& request);
  Outcome Read(Qp& qp, const Request& request);
  Outcome Atomic(Qp& qp, const Request& request);
  [[gnu::cold]] Outcome SendPiece(Qp& qp, const Request& request);
  [[gnu::cold]] Outcome SendIntoCqe(Qp& qp, const Request& request);
  // Flushes for a READ. kFlushing: the READ waits. Any other value than kOk: the READ fails with
  // it.
  Outcome FlushFirst(Qp& qp, bool again);
  Outcome ResolveReceive(Qp& qp, uint64_t bytes, SegmentList* to);
  Outcome FailReceive(Qp& qp, uint8_t local_syndrome, uint8_t remote_syndrome);
  void CompleteSend(Qp& qp, const Request& request, uint8_t op_own_bits);

  KeyTable& keys_;
  CompletionQueues& cqs_;
  Durability& durability_;
  ErrorState& errors_;
  Turn& turn_;
  const uint64_t cqe_scatter_bytes_;  // receives of at most so many bytes land in their CQE
  const bool zero_byte_read_flushes_;
};

}  // namespace hyperloop::softrnic
