// The clock, sleeping and randomness of simulated threads, and what they are told of their process
// and host.
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "simulation/interpose.h"

namespace hyperloop::simulation {
namespace {

// Between two looks at the clock, so that a loop that looks for a deadline reaches it.
constexpr uint64_t kLook = 2000;
// A thread that does nothing but yield waits twice as long each time, up to this.
constexpr uint64_t kLongestYield = 500'000;
// Whoever has not yielded for so long has done something else.
constexpr uint64_t kSomethingElse = 20 * kLook;

constexpr pid_t kPid = 1000;

void SleepUntil(uint64_t deadline) {
  const auto never = [] { return false; };
  Scheduler::Get().Wait(never, deadline);
}

}  // namespace
}  // namespace hyperloop::simulation

using namespace hyperloop::simulation;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  if (!Scheduler::Simulates()) return HL_REAL(clock_gettime)(clock, time);
  Scheduler& scheduler = Scheduler::Get();
  scheduler.Pass(kLook);
  scheduler.Point();
  time->tv_sec = static_cast<time_t>(scheduler.Now() / kSecond);
  time->tv_nsec = static_cast<long>(scheduler.Now() % kSecond);
  return 0;
}

int nanosleep(const timespec* time, timespec* left) {
  if (!Scheduler::Simulates()) return HL_REAL(nanosleep)(time, left);
  SleepUntil(Scheduler::Get().Now() + Nanoseconds(*time));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  if (!Scheduler::Simulates()) return HL_REAL(clock_nanosleep)(clock, flags, time, left);
  const uint64_t from = flags == TIMER_ABSTIME ? 0 : Scheduler::Get().Now();
  SleepUntil(from + Nanoseconds(*time));
  return 0;
}

int usleep(useconds_t microseconds) {
  if (!Scheduler::Simulates()) return HL_REAL(usleep)(microseconds);
  SleepUntil(Scheduler::Get().Now() + uint64_t{microseconds} * 1000);
  return 0;
}

int sched_yield() {
  if (!Scheduler::Simulates()) return HL_REAL(sched_yield)();
  Scheduler::Yield& last = Scheduler::LastYield();
  const uint64_t now = Scheduler::Get().Now();
  last.pause = now - last.end < kSomethingElse ? std::min(2 * last.pause, kLongestYield) : kLook;
  SleepUntil(now + last.pause);
  last.end = Scheduler::Get().Now();
  return 0;
}

// A host has one processor, and nobody has a priority. Where the kernel runs the simulation is no
// part of it.
int sched_getcpu() { return Scheduler::Simulates() ? 0 : HL_REAL(sched_getcpu)(); }

int sched_setaffinity(pid_t id, size_t size, const cpu_set_t* set) {
  return Scheduler::Simulates() ? 0 : HL_REAL(sched_setaffinity)(id, size, set);
}

int setpriority(__priority_which_t which, id_t id, int priority) {
  return Scheduler::Simulates() ? 0 : HL_REAL(setpriority)(which, id, priority);
}

// The name of a primary, which replicas keep, has both.
pid_t getpid() {
  if (!Scheduler::Simulates()) return HL_REAL(getpid)();
  return kPid;
}

int gethostname(char* name, size_t size) {
  if (!Scheduler::Simulates()) return HL_REAL(gethostname)(name, size);
  snprintf(name, size, "simulated");
  return 0;
}

ssize_t getrandom(void* buffer, size_t size, unsigned flags) {
  if (!Scheduler::Simulates()) return HL_REAL(getrandom)(buffer, size, flags);
  std::generate_n(static_cast<unsigned char*>(buffer), size,
                  [] { return static_cast<unsigned char>(Scheduler::Get().Choose(256)); });
  return static_cast<ssize_t>(size);
}

}  // extern "C"
#pragma GCC visibility pop
