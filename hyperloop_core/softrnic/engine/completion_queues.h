// CompletionQueues owns the completion queues of all clients. It writes their CQEs, counts them,
// wakes the send queues that WAIT for them, and notifies completion channels.
//
// Post writes the entry's last word with a release store, which hands the entry and the payload
// before it to software. Then it wakes the WAITs that are met, and notifies the channel if that is
// armed. A completion queue that would overrun goes into error, and with it every connected queue
// pair that uses it.
//
// May call: ErrorState, ReadyList, Turn, Waiters.
#pragma once

#include <memory>

#include "softrnic/engine/error_state.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/tables.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

class CompletionQueues {
 public:
  CompletionQueues(ErrorState& errors, ReadyList& ready, Turn& turn)
      : errors_(errors), ready_(ready), turn_(turn) {}

  // Null: there is none.
  Cq* Find(uint32_t cqn) const { return cqs_.Find(cqn); }
  // 0: the table is full.
  uint32_t Insert(std::unique_ptr<Cq> cq) { return cqs_.Insert(std::move(cq)); }
  void Erase(uint32_t cqn) { cqs_.Erase(cqn); }

  // Post and PostError write one CQE; they write none if the queue is in error or overruns.
  // `op_own_bits`: the bits of the CQE's last byte that say whether the event is solicited, and the
  // CQE's format.
  void Post(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
            uint32_t bytes, uint32_t imm, uint8_t op_own_bits);
  void PostError(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode, uint16_t counter,
                 uint8_t syndrome);
  // The entry to be filled next; `*owner` is its owner bit. Null: the CQ was in error, or would
  // overrun and is in error now.
  mlx5_cqe64* NextEntry(Cq& cq, uint8_t* owner);

  // True if CQE number `index` was produced. Numbers have 24 bits and wrap; the half of their range
  // that lies behind the producer counts as produced.
  static bool WaitMet(const Cq& cq, uint32_t index) {
    return ((cq.producer - 1 - index) & 0x800000) == 0;
  }
  // Arms the channel, as the client asked by storing `value` in the CQ's register. True: that made
  // an event.
  static bool Arm(Cq& cq, uint64_t value);

 private:
  // `urgent`: solicited, or an error.
  void Produced(Cq& cq, bool urgent) {
    if (urgent) cq.had_urgent = true, cq.last_urgent = cq.producer;
    const uint32_t number = cq.producer++;
    if (cq.waiters != nullptr) WakeWaiters(cq);
    if (cq.armed != Armed::kNo) [[unlikely]]
      if (urgent || (cq.armed == Armed::kAny && ((number - cq.armed_for) & 0x800000) == 0)) {
        turn_.AddSteps(kStepsPerEvent);
        Notify(cq);
      }
  }
  void WakeWaiters(Cq& cq);
  static void Notify(Cq& cq);
  // Puts `cq` and the connected queue pairs that use it into error.
  void Overrun(Cq& cq);

  // An event costs a system call; looking at a few WAITs costs as much as a WQE.
  static constexpr size_t kStepsPerEvent = 8;
  static constexpr size_t kWaitsPerStep = 8;

  ErrorState& errors_;
  ReadyList& ready_;
  Turn& turn_;
  NumberTable<Cq, 14> cqs_;
};

}  // namespace hyperloop::softrnic
