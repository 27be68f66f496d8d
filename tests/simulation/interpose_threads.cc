// Threads, mutexes, read-write locks, conditions and futexes of simulated threads.
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "simulation/interpose.h"

namespace hyperloop::simulation {
namespace {

// --- locks

// Holders of a mutex or read-write lock; an entry exists while somebody holds it.
struct Lock {
  pthread_t writer{};
  int depth = 0;  // of the writer; 0: there is none
  int readers = 0;
};
// The processes of those that wait for a lock.
std::unordered_map<const void*, std::vector<uint64_t>>& Awaited() {
  static std::unordered_map<const void*, std::vector<uint64_t>> awaited;
  return awaited;
}
std::unordered_map<const void*, Lock>& Locks() {
  static std::unordered_map<const void*, Lock> locks;
  return locks;
}

bool Free(const void* lock) { return !Locks().contains(lock); }
bool Readable(const void* lock) {
  const auto found = Locks().find(lock);
  return found == Locks().end() || found->second.depth == 0;
}

bool IsRecursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE_NP;
}

// Whether this thread holds the mutex already, and now once more.
bool EnterAgain(const pthread_mutex_t* mutex) {
  const auto found = Locks().find(mutex);
  if (found == Locks().end() || !IsRecursive(mutex)) return false;
  if (!pthread_equal(found->second.writer, pthread_self())) return false;
  ++found->second.depth;
  return true;
}

void TakeFree(const void* lock) { Locks()[lock] = {pthread_self(), 1, 0}; }

int Acquire(const void* lock, uint64_t deadline) {
  const auto free = [lock] { return Free(lock); };
  std::vector<uint64_t>& waiting = Awaited()[lock];
  const uint64_t process = Scheduler::Process();
  waiting.push_back(process);
  const bool in_time = Scheduler::Get().Wait(free, deadline);
  waiting.erase(std::ranges::find(waiting, process));
  if (waiting.empty()) Awaited().erase(lock);
  if (!in_time) return ETIMEDOUT;
  TakeFree(lock);
  return 0;
}

void Release(const void* lock) {
  const auto found = Locks().find(lock);
  if (found == Locks().end()) return;
  Lock& held = found->second;
  const int left = held.readers > 0 ? --held.readers : --held.depth;
  if (left == 0) Locks().erase(found);
}

// --- conditions

struct Waiter {
  bool woken = false;
};
std::unordered_map<const void*, std::vector<Waiter*>>& Waiters() {
  static std::unordered_map<const void*, std::vector<Waiter*>> waiters;
  return waiters;
}

void WakeOne(const void* key) {
  auto& waiters = Waiters()[key];
  std::vector<Waiter*> asleep;
  std::copy_if(waiters.begin(), waiters.end(), std::back_inserter(asleep),
               [](const Waiter* each) { return !each->woken; });
  if (!asleep.empty()) asleep[Scheduler::Get().Choose(asleep.size())]->woken = true;
}

void WakeAll(const void* key) {
  for (Waiter* each : Waiters()[key]) each->woken = true;
}

// Waits until it is woken by `key`. `before`: called when the wait has begun.
template <class Before>
bool Sleep(const void* key, uint64_t deadline, Before before) {
  Waiter self;
  Waiters()[key].push_back(&self);
  before();
  const auto woken = [&self] { return self.woken; };
  const bool in_time = Scheduler::Get().Wait(woken, deadline);
  std::erase(Waiters()[key], &self);
  return in_time;
}

int WaitForCondition(pthread_cond_t* condition, pthread_mutex_t* mutex, uint64_t deadline) {
  const bool woken = Sleep(condition, deadline, [&] { Release(mutex); });
  Acquire(mutex, kNever);
  return woken ? 0 : ETIMEDOUT;
}

long Futex(uint32_t* word, int operation, uint32_t value) {
  const int kind = operation & FUTEX_CMD_MASK;
  if (kind == FUTEX_WAKE || kind == FUTEX_WAKE_BITSET) {
    WakeAll(word);
    return 1;
  }
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
    errno = EAGAIN;
    return -1;
  }
  Sleep(word, kNever, [] {});
  return 0;
}

}  // namespace

bool HoldsUpOthers(pthread_t thread, uint64_t process) {
  return std::ranges::any_of(Awaited(), [&](const auto& awaited) {
    const auto held = Locks().find(awaited.first);
    if (held == Locks().end() || held->second.depth == 0) return false;
    if (!pthread_equal(held->second.writer, thread)) return false;
    return std::ranges::any_of(awaited.second, [&](uint64_t each) { return each != process; });
  });
}

}  // namespace hyperloop::simulation

using namespace hyperloop::simulation;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

int pthread_create(pthread_t* handle, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_create)(handle, attributes, body, argument);
  *handle = Scheduler::Get().Start(body, argument);
  Scheduler::Get().Point();
  return 0;
}

int pthread_join(pthread_t handle, void** result) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_join)(handle, result);
  const auto ended = [handle] { return Scheduler::Ended(handle); };
  Scheduler::Get().Wait(ended);
  void* const returned = Scheduler::Get().Forget(handle);
  if (result != nullptr) *result = returned;
  return 0;
}

pthread_t pthread_self() {
  return Scheduler::Simulates() ? Scheduler::Self() : HL_REAL(pthread_self)();
}

int pthread_setname_np(pthread_t handle, const char* name) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_setname_np)(handle, name);
  Scheduler::SetName(handle, name);
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_mutex_lock)(mutex);
  return EnterAgain(mutex) ? 0 : Acquire(mutex, kNever);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_mutex_trylock)(mutex);
  if (EnterAgain(mutex)) return 0;
  if (!Free(mutex)) return EBUSY;
  TakeFree(mutex);
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_mutex_unlock)(mutex);
  Release(mutex);
  return 0;
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_rwlock_wrlock)(lock);
  return Acquire(lock, kNever);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_rwlock_trywrlock)(lock);
  if (!Free(lock)) return EBUSY;
  TakeFree(lock);
  return 0;
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_rwlock_rdlock)(lock);
  const auto readable = [lock] { return Readable(lock); };
  Scheduler::Get().Wait(readable);
  ++Locks()[lock].readers;
  return 0;
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_rwlock_tryrdlock)(lock);
  if (!Readable(lock)) return EBUSY;
  ++Locks()[lock].readers;
  return 0;
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_rwlock_unlock)(lock);
  Release(lock);
  return 0;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_cond_wait)(condition, mutex);
  return WaitForCondition(condition, mutex, kNever);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_cond_timedwait)(condition, mutex, deadline);
  return WaitForCondition(condition, mutex, Nanoseconds(*deadline));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  if (!Scheduler::Simulates())
    return HL_REAL(pthread_cond_clockwait)(condition, mutex, clock, deadline);
  return WaitForCondition(condition, mutex, Nanoseconds(*deadline));
}

int pthread_cond_signal(pthread_cond_t* condition) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_cond_signal)(condition);
  WakeOne(condition);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) {
  if (!Scheduler::Simulates()) return HL_REAL(pthread_cond_broadcast)(condition);
  WakeAll(condition);
  return 0;
}

// std::atomic waits by this function.
long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long argument[6];
  for (long& each : argument) each = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && Scheduler::Simulates()) {
    return Futex(reinterpret_cast<uint32_t*>(argument[0]), static_cast<int>(argument[1]),
                 static_cast<uint32_t>(argument[2]));
  }
  return HL_REAL(syscall)(number, argument[0], argument[1], argument[2], argument[3], argument[4],
                          argument[5]);
}

}  // extern "C"
#pragma GCC visibility pop
