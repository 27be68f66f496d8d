#include "softrnic/engine/doorbells.h"

namespace hyperloop::softrnic {

// The client stores a register, then sets its summary bit (seq_cst RMW). The exchange here takes
// the bit. It is an acquire operation, so the engine sees the register and the WQEs written before
// it.
bool Doorbells::Collect() {
  bool any = false;
  turn_.ForgetWork();
  for (Context* c : clients_.open()) {
    for (uint32_t w = 0; w < c->uar_words; ++w) {
      uint64_t* const summary = &c->uar->header.summary[w];
      if (__atomic_load_n(summary, __ATOMIC_RELAXED) == 0) [[likely]]
        continue;
      uint64_t bits = __atomic_exchange_n(summary, 0, __ATOMIC_ACQUIRE);
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t index = w * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
        Qp* const qp = c->doorbells[index];
        const uint64_t value = __atomic_load_n(&c->uar->registers[index], __ATOMIC_ACQUIRE);
        if (Cq* const cq = c->arms[index]; cq != nullptr && (value >> 63) != 0) [[unlikely]]
          CompletionQueues::Arm(*cq, value);
        if (qp == nullptr || (value >> 63) == 0 || qp->state == rnic::QpState::kReset) continue;
        ++qp->count.doorbells;
        any = true;
        requester_.Advance(*qp, static_cast<uint16_t>(value));
      }
    }
  }
  return any;
}

bool Doorbells::Pending() const {
  for (const Context* c : clients_.open())
    for (uint32_t w = 0; w < c->uar_words; ++w)
      if (__atomic_load_n(&c->uar->header.summary[w], __ATOMIC_SEQ_CST) != 0) return true;
  return false;
}

}  // namespace hyperloop::softrnic
