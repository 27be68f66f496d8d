#include "softrnic/engine/completion_queues.h"

#include <cstring>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/waiters.h"

namespace hyperloop::softrnic {
namespace {

// Writes the last 8 bytes of a CQE: the release store hands it, and the payload before it, to
// software (CqeReady).
void HandOver(mlx5_cqe64* cqe, uint32_t sop_qpn, uint16_t counter, uint8_t op_own) {
  struct {
    uint32_t sop_qpn;
    uint16_t counter;
    uint8_t signature;
    uint8_t op_own;
  } const tail{htobe32(sop_qpn), htobe16(counter), 0, op_own};
  uint64_t word;
  static_assert(sizeof(tail) == sizeof(word));
  std::memcpy(&word, &tail, sizeof(word));
  __atomic_store_n(reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(cqe) + 56), word,
                   __ATOMIC_RELEASE);
}

}  // namespace

mlx5_cqe64* CompletionQueues::NextEntry(Cq& cq, uint8_t* owner) {
  if (!cq.ignore_overrun) {
    if (cq.error) [[unlikely]]
      return nullptr;
    if (((cq.producer - cq.consumer) & 0xffffff) > cq.mask) [[unlikely]] {
      cq.consumer = LoadDoorbellRecord(cq.dbrec) & 0xffffff;
      if (((cq.producer - cq.consumer) & 0xffffff) > cq.mask) {
        Overrun(cq);
        return nullptr;
      }
    }
  }
  *owner = static_cast<uint8_t>((cq.producer >> cq.log_size) & 1);
  return reinterpret_cast<mlx5_cqe64*>(cq.ring) + (cq.producer & cq.mask);
}

void CompletionQueues::Overrun(Cq& cq) {
  cq.error = true;
  if (cq.armed != Armed::kNo) Notify(cq);
  ForEachQp(*cq.context, [&cq, this](Qp& qp) {
    if ((qp.send.cq == &cq || qp.receive.cq == &cq) && qp.state >= rnic::QpState::kReadyToReceive)
      errors_.Enter(qp);
  });
}

void CompletionQueues::Post(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode,
                            uint16_t counter, uint32_t bytes, uint32_t imm, uint8_t op_own_bits) {
  uint8_t owner;
  mlx5_cqe64* const cqe = NextEntry(cq, &owner);
  if (cqe == nullptr) [[unlikely]]
    return;
  ++qp.count.cqes;
  cqe->srqn_uidx = 0;
  cqe->imm_inval_pkey = imm;
  cqe->byte_cnt = htobe32(bytes);
  cqe->timestamp = 0;
  HandOver(cqe, static_cast<uint32_t>(wqe_opcode) << 24 | qp.qpn, counter,
           static_cast<uint8_t>(cqe_opcode << 4 | op_own_bits | owner));
  Produced(cq, (op_own_bits & rnic::kSolicited) != 0);
}

void CompletionQueues::PostError(Qp& qp, Cq& cq, uint8_t cqe_opcode, uint8_t wqe_opcode,
                                 uint16_t counter, uint8_t syndrome) {
  uint8_t owner;
  mlx5_cqe64* const cqe = NextEntry(cq, &owner);
  if (cqe == nullptr) return;
  ++qp.count.cqes;
  ++qp.count.error_cqes;
  auto* const error = reinterpret_cast<mlx5_err_cqe*>(cqe);
  error->srqn = 0;
  std::memset(error->rsvd1, 0, sizeof(error->rsvd1));
  error->vendor_err_synd = 0;
  error->syndrome = syndrome;
  HandOver(cqe, static_cast<uint32_t>(wqe_opcode) << 24 | qp.qpn, counter,
           static_cast<uint8_t>(cqe_opcode << 4 | owner));
  Produced(cq, true);
}

bool CompletionQueues::Arm(Cq& cq, uint64_t value) {
  const auto consumed = static_cast<uint32_t>(value & 0xffffff);
  const auto more = static_cast<uint32_t>(value >> kArmMoreShift) % kMostArmed;
  const bool solicited_only = (value & kArmSolicited) != 0;
  cq.armed = solicited_only ? Armed::kSolicited : Armed::kAny;
  cq.armed_for = consumed + more;
  // No later CQE announces what came since the client's last poll, so it is announced now.
  const uint32_t unpolled = (cq.producer - consumed) & 0xffffff;
  const bool missed = (!solicited_only && unpolled > more) ||
                      (cq.had_urgent && ((cq.last_urgent - consumed) & 0xffffff) < unpolled);
  if (!missed && !cq.error) return false;
  Notify(cq);
  return true;
}

void CompletionQueues::Notify(Cq& cq) {
  cq.armed = Armed::kNo;
  cq.notify();
}

void CompletionQueues::WakeWaiters(Cq& cq) {
  size_t looked = 0;
  for (Qp* qp = cq.waiters; qp != nullptr; ++looked) {
    Qp* const next = qp->wait.next;
    if (WaitMet(cq, qp->wait.index)) {
      Waiters::Remove(*qp);
      qp->send.stall = Stall::kWaitMet;
      qp->send.resume = true;
      ready_.Add(*qp);
    }
    qp = next;
  }
  turn_.AddSteps(looked / kWaitsPerStep);
}

}  // namespace hyperloop::softrnic
