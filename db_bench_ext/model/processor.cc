#include "model/processor.h"

#include <algorithm>
#include <utility>

namespace hyperloop::model {

Processor::Processor(const Costs& costs, uint32_t others, bool polls, uint64_t seed,
                     Nanoseconds now)
    : others_(others),
      polls_(polls),
      slice_(Rounded(costs.slice_us * 1000)),
      tick_(Rounded(costs.tick_us * 1000)),
      credit_(Rounded(costs.credit_us * 1000)),
      preempt_(Rounded(costs.preempt_us * 1000)),
      yield_(Rounded(costs.yield_us * 1000)),
      wakeup_(Rounded(costs.wakeup_ns)),
      random_(seed),
      asleep_(!polls),
      slice_left_(NewSlice()),
      own_slice_(NewSlice()) {
  if (others == 0) return;
  now_ = now - Rounded(Chance() * static_cast<double>((others + 1) * slice_));
  Advance(now);
}

Nanoseconds Processor::NewSlice() {
  return slice_ + Rounded(Chance() * static_cast<double>(tick_));
}

// The thread runs until it yields, has run a slice more than the others, or `to`.
void Processor::RunThread(Nanoseconds to) {
  const double left = static_cast<double>(own_slice_) - (own_ - theirs_);
  Nanoseconds end = now_ + Rounded(std::max(0.0, left));
  if (polls_ && yield_ != 0) end = std::min(end, std::max(now_, idle_since_ + yield_));
  runs_ = end > to;
  end = std::min(end, to);
  own_ += static_cast<double>(end - now_);
  now_ = end;
  if (!runs_) slice_left_ = NewSlice();
}

void Processor::RunOthers(Nanoseconds to) {
  const Nanoseconds end = std::min(to, now_ + slice_left_);
  theirs_ += static_cast<double>(end - now_) / others_;
  slice_left_ -= end - now_;
  now_ = end;
  if (slice_left_ != 0) return;
  slice_left_ = NewSlice();
  runs_ = !asleep_ && own_ <= theirs_;
  if (!runs_) return;
  idle_since_ = now_;
  own_slice_ = NewSlice();
}

void Processor::Advance(Nanoseconds to) {
  while (now_ < to) runs_ ? RunThread(to) : RunOthers(to);
}

Nanoseconds Processor::Begins(Nanoseconds at) {
  if (others_ != 0) Advance(at);
  const bool woken = std::exchange(asleep_, false);
  const Nanoseconds wakeup = woken ? wakeup_ : 0;
  if (others_ == 0) return at + wakeup;
  if (woken) {
    own_ = std::max(own_, theirs_ - static_cast<double>(credit_));
    runs_ = theirs_ - own_ > static_cast<double>(preempt_);
    own_slice_ = NewSlice();
  }
  while (!runs_) RunOthers(now_ + slice_left_);
  idle_since_ = std::max(idle_since_, now_);
  return std::max(at, now_) + wakeup;
}

void Processor::Works(Nanoseconds until) { idle_since_ = until; }

void Processor::Rests(Nanoseconds at) {
  if (polls_) return;
  asleep_ = true;
  if (others_ == 0) return;
  Advance(at);
  if (std::exchange(runs_, false)) slice_left_ = NewSlice();
}

}  // namespace hyperloop::model
