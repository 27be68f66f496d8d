// CompletionQueues: CQEs, the producer counter, the send queues that WAIT for it, and the
// completion channel. Owns the completion queues of all clients.
//
// Post writes the entry's last word with a release store, which hands the entry and the payload
// before it to software. Then it wakes the WAITs that are met, and notifies the channel if that is
// armed.
// A completion queue that would overrun fails, and with it every queue pair that uses it.
//
// May call: ErrorState, ReadyList, Waiters.
#pragma once

#include <memory>

#include "softrnic/engine/error_state.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/tables.h"

namespace hyperloop::softrnic {

class CompletionQueues {
 public:
  CompletionQueues(ErrorState& errors, ReadyList& ready) : errors_(errors), ready_(ready) {}

  // Null: there is none.
  Cq* Find(uint32_t cqn) const { return cqs_.Find(cqn); }
  // 0: the table is full.
  uint32_t Insert(std::unique_ptr<Cq> cq) { return cqs_.Insert(std::move(cq)); }
  void Erase(uint32_t cqn) { cqs_.Erase(cqn); }

  // `op_own_bits`: the solicited bit and the format of the CQE, of its last byte.
  void Post(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
            uint32_t bytes, uint32_t imm, uint8_t op_own_bits);
  void PostError(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
                 uint8_t syndrome);
  // The entry that Post fills next, and its owner bit; null: the CQ is in error, now or by this
  // overrun.
  mlx5_cqe64* NextEntry(Cq& cq, uint8_t* owner);

  // CQE number `index` was produced: cyclic on 24 bits, half range.
  static bool WaitMet(const Cq& cq, uint32_t index) {
    return ((cq.producer - 1 - index) & 0x800000) == 0;
  }
  // The client armed the channel by storing `value` in the CQ's register.
  static void Arm(Cq& cq, uint64_t value);

 private:
  // `urgent`: solicited, or an error.
  void Produced(Cq& cq, bool urgent) {
    if (urgent) cq.had_solicited = true, cq.last_solicited = cq.producer;
    ++cq.producer;
    if (cq.waiters != nullptr) WakeWaiters(cq);
    if (cq.armed != Armed::kNo) [[unlikely]]
      if (urgent || cq.armed == Armed::kAny) Notify(cq);
  }
  void WakeWaiters(Cq& cq);
  static void Notify(Cq& cq);
  // A queue pair's CQ is in error.
  void Overrun(Cq& cq);

  ErrorState& errors_;
  ReadyList& ready_;
  NumberTable<Cq, 14> cqs_;
};

}  // namespace hyperloop::softrnic
