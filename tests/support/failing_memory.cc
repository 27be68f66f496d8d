#include "support/failing_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace hyperloop::test {
namespace {

enum class Mode { kOff, kHere, kElsewhere };

std::atomic<Mode> mode{Mode::kOff};
std::atomic<long> left{0};  // allocations until the first that fails; then how many failed, negated
std::atomic<long> most{0};  // that fail
std::atomic<size_t> failures{0};
std::atomic<long> alive{0};
thread_local bool here = false;

bool Fails() {
  const Mode now = mode.load(std::memory_order_acquire);
  if (now == Mode::kOff || (now == Mode::kHere) != here) return false;
  const long number = left.fetch_sub(1);
  if (number > 0 || -number >= most.load()) return false;
  failures.fetch_add(1);
  return true;
}

}  // namespace

FailingMemory::FailingMemory(Where where, size_t number, size_t count) {
  here = true;
  left = static_cast<long>(number);
  most = static_cast<long>(count);
  failures = 0;
  mode.store(where == Where::kHere ? Mode::kHere : Mode::kElsewhere, std::memory_order_release);
}

FailingMemory::~FailingMemory() {
  mode = Mode::kOff;
  here = false;
}

size_t FailingMemory::failed() { return failures; }
long FailingMemory::living() { return alive; }

}  // namespace hyperloop::test

void* operator new(size_t size) {
  void* const at = hyperloop::test::Fails() ? nullptr : std::malloc(size);
  if (at == nullptr) throw std::bad_alloc();
  hyperloop::test::alive.fetch_add(1, std::memory_order_relaxed);
  return at;
}
void operator delete(void* at) noexcept {
  if (at == nullptr) return;
  hyperloop::test::alive.fetch_sub(1, std::memory_order_relaxed);
  // So that nobody goes on with it unnoticed. The compiler would leave it out.
  std::memset(at, 0xdd, malloc_usable_size(at));
  asm volatile("" : : "r"(at) : "memory");
  std::free(at);
}
void operator delete(void* at, size_t) noexcept { operator delete(at); }
