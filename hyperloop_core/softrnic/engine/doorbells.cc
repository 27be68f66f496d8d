#include "softrnic/engine/doorbells.h"

#include <utility>

namespace hyperloop::softrnic {

namespace {

// How much of one client's doorbells one Collect takes, in registers.
constexpr uint32_t kCostPerCollect = 64;
// An event costs a system call.
constexpr uint32_t kCostOfEvent = 32;

}  // namespace

// The client stores a register, then sets its summary bit (seq_cst RMW). The exchange here takes
// the bits of a word. It is an acquire operation, so the engine sees the registers and the WQEs
// written before it.
bool Doorbells::Collect() {
  bool any = false;
  turn_.ForgetWork();
  ++collection_;
  if (left_) [[unlikely]]
    return CollectLeft();
  for (Context* c : clients_.open()) {
    for (uint32_t w = 0; w < c->uar_words; ++w) {
      uint64_t* const summary = &c->uar->header.summary[w];
      if (__atomic_load_n(summary, __ATOMIC_RELAXED) == 0) [[likely]]
        continue;
      any |= Take(*c, w, __atomic_exchange_n(summary, 0, __ATOMIC_ACQUIRE));
      if (c->rung.bits != 0) [[unlikely]]
        break;
    }
  }
  return any;
}

// Like Collect, but each call begins with another connection, and looks at each connection's words
// from the one on where that connection's turn ended before.
bool Doorbells::CollectLeft() {
  bool any = false;
  left_ = false;
  const std::vector<Context*>& open = clients_.open();
  ++first_;
  for (size_t i = 0; i < open.size(); ++i) {
    Context& c = *open[(first_ + i) % open.size()];
    uint32_t word = c.rung.word;
    any |= Take(c, word, std::exchange(c.rung.bits, 0));
    for (uint32_t n = 0; n < c.uar_words && c.rung.bits == 0; ++n) {
      if (++word >= c.uar_words) word = 0;
      uint64_t* const summary = &c.uar->header.summary[word];
      if (__atomic_load_n(summary, __ATOMIC_RELAXED) == 0) continue;
      any |= Take(c, word, __atomic_exchange_n(summary, 0, __ATOMIC_ACQUIRE));
    }
  }
  return any;
}

inline bool Doorbells::Take(Context& c, uint32_t word, uint64_t bits) {
  bool any = false;
  Account& account = *c.account;
  if (account.collection != collection_) {
    account.collection = collection_;
    account.doorbell_cost = 0;
  }
  for (; bits != 0; bits &= bits - 1) {
    if (account.doorbell_cost++ >= kCostPerCollect) [[unlikely]] {
      c.rung = {word, bits};
      left_ = true;
      break;
    }
    const uint32_t index = word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
    Qp* const qp = c.doorbells[index];
    const uint64_t value = __atomic_load_n(&c.uar->registers[index], __ATOMIC_ACQUIRE);
    if (Cq* const cq = c.arms[index]; cq != nullptr && (value >> 63) != 0) [[unlikely]]
      if (CompletionQueues::Arm(*cq, value)) account.doorbell_cost += kCostOfEvent;
    if (qp == nullptr || (value >> 63) == 0 || qp->state == rnic::QpState::kReset) continue;
    ++qp->count.doorbells;
    any = true;
    requester_.Advance(*qp, static_cast<uint16_t>(value));
  }
  return any;
}

bool Doorbells::Pending() const {
  for (const Context* c : clients_.open()) {
    if (c->rung.bits != 0) return true;
    for (uint32_t w = 0; w < c->uar_words; ++w)
      if (__atomic_load_n(&c->uar->header.summary[w], __ATOMIC_SEQ_CST) != 0) return true;
  }
  return false;
}

}  // namespace hyperloop::softrnic
