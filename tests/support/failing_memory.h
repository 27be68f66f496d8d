// ForEachFailingAllocation: a scenario runs again and again, with the first allocation of what it
// does under a Shortage failing, then with the second one, and so on until none fails. A program
// that has it links failing_memory.cc, which replaces operator new and delete.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::test {

inline constexpr size_t kForGood = SIZE_MAX / 2;  // as a count: all that follow fail, too

// The allocations that fail: `count` in a row, from number `number` on, counted from 0 over all
// calls of Here and Elsewhere. Only one such call is under way at a time.
class Shortage {
 public:
  Shortage(size_t number, size_t count) : left_(static_cast<long>(number)), count_(count) {}
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

  // Runs `act` while operator new counts, and fails, on the calling thread alone, or on all others.
  // True: std::bad_alloc came out of `act`.
  template <class Act>
  bool Here(Act&& act) {
    const Armed armed(this, /*here=*/true);
    return RanOutOfMemory(std::forward<Act>(act));
  }
  template <class Act>
  bool Elsewhere(Act&& act) {
    const Armed armed(this, /*here=*/false);
    return RanOutOfMemory(std::forward<Act>(act));
  }
  // How many have failed.
  size_t failed() const { return failed_; }
  // An allocation on one of the threads: whether it is to fail.
  bool TakeOne();

 private:
  struct Armed {
    Armed(Shortage* shortage, bool here);
    ~Armed();
  };
  std::atomic<long> left_;  // allocations until the first that fails; then how many came, negated
  const size_t count_;
  std::atomic<size_t> failed_{0};
};

struct ShortageRuns {
  size_t count = 1;    // allocations that fail in a row
  size_t step = 1;     // from the first one that fails in a run to that of the next run
  size_t threads = 1;  // that the process has between the runs
  size_t harmed = 1;   // runs, at least, in which the scenario returns false
};

// Runs `scenario` once with memory enough, and then with each allocation failing. It returns
// whether nothing of what it did was harmed, which must be so where no allocation failed, and it
// checks by itself what must hold where some did. After each run, whatever it made is gone: objects
// of operator new, file descriptors, and threads. Returns how many runs there were, up to the one
// in which no allocation failed; the first failed expectation ends them.
size_t ForEachFailingAllocation(const ShortageRuns& runs,
                                const std::function<bool(Shortage&)>& scenario);

// That this process has open.
size_t OpenDescriptors();
// Waits until the process has `threads` threads, of which all but the calling one sleep: a thread
// that ends gives back what its last task needed.
void AwaitThreads(size_t threads);

}  // namespace hyperloop::test
