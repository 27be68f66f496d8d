// Processor: one core of a replica under the clock of a model, which its member's thread shares
// with threads that compute all the time. It follows the rules of Linux's Completely Fair Scheduler
// for threads of equal weight:
//
//   - A thread runs for a slice, and until the timer interrupt after it, which comes at any moment
//     of a tick. The next one is that which has run least (its virtual time).
//   - A thread that polls and yields runs again after one slice of another thread, as long as it
//     has run less than they have.
//   - A thread that wakes up counts as having run at most `credit` less than the others. If that is
//     more than `preempt`, it runs at once; otherwise at the end of the slice.
#pragma once

#include <random>

#include "model/costs.h"
#include "model/timeline.h"

namespace hyperloop::model {

class Processor {
 public:
  // `others`: threads that compute. `polls`: the member's thread does, and never sleeps. `seed`
  // decides how far the others are in their round, and when timer interrupts come. `now`: not
  // within the first round.
  Processor(const Costs& costs, uint32_t others, bool polls, uint64_t seed, Nanoseconds now);

  // The member's thread has work from `at` on. Returns when it begins.
  Nanoseconds Begins(Nanoseconds at);
  // It works until `until`.
  void Works(Nanoseconds until);
  // It found nothing more to do, and sleeps unless it polls.
  void Rests(Nanoseconds at);

 private:
  void Advance(Nanoseconds to);
  void RunThread(Nanoseconds to);
  void RunOthers(Nanoseconds to);
  Nanoseconds NewSlice();
  // A number from 0 to 1.
  double Chance() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  const uint32_t others_;
  const bool polls_;
  const Nanoseconds slice_, tick_, credit_, preempt_, yield_, wakeup_;
  std::mt19937_64 random_;
  bool asleep_;
  bool runs_ = false;           // the member's thread; the others otherwise
  Nanoseconds now_ = 0;         // what follows is of this moment
  double own_ = 0;              // virtual time of the member's thread
  double theirs_ = 0;           // of the others, on average
  Nanoseconds slice_left_ = 0;  // of the other thread that runs
  Nanoseconds own_slice_ = 0;   // how far the member's thread may get ahead
  Nanoseconds idle_since_ = 0;  // when the member's thread last had work, or began to run
};

}  // namespace hyperloop::model
