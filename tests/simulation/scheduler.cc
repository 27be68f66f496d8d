#include "simulation/scheduler.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "simulation/interpose.h"

namespace hyperloop::simulation {

struct Scheduler::Thread {
  uint64_t number = 0;
  uint64_t process = 0;
  pthread_t handle{};
  sem_t baton;
  bool ended = false;
  // While the thread waits; null: it can go on.
  const std::function<bool()>* ready = nullptr;
  uint64_t deadline = kNever;
  bool descriptors = false;
  uint64_t looked = 0;  // the number of descriptor changes when `ready` was called last
};

namespace {

// One in so many points lets another thread go on.
constexpr uint64_t kPointsPerSwitch = 8;

thread_local Scheduler::Thread* current = nullptr;

}  // namespace

Scheduler& Scheduler::Get() {
  static Scheduler scheduler;
  return scheduler;
}

bool Scheduler::Simulates() { return current != nullptr; }

void Scheduler::Begin(uint64_t seed) {
  random_.seed(seed);
  current = NewThread();
  current->handle = pthread_self();
}

Scheduler::Thread* Scheduler::NewThread() {
  auto made = std::make_unique<Thread>();
  made->number = next_number_++;
  if (current != nullptr) made->process = current->process;
  sem_init(&made->baton, 0, 0);
  threads_.push_back(std::move(made));
  return threads_.back().get();
}

void Scheduler::Enter(Thread* thread) {
  thread->handle = pthread_self();
  AwaitTurn(thread);
  current = thread;
}

void Scheduler::Leave() {
  current->ended = true;
  Thread* const next = Next();
  leaving_ = gettid();
  current = nullptr;
  sem_post(&next->baton);
}

// What a thread frees while it ends would be free sooner in one run than in another. So nobody goes
// on before it is gone: addresses are the same in each run, and with them the waits of std::atomic,
// which share their queues by address.
void Scheduler::AwaitTurn(Thread* self) {
  while (sem_wait(&self->baton) != 0 && errno == EINTR) {
  }
  // Not by sched_yield, which gives a turn away.
  while (leaving_ != 0 && tgkill(getpid(), leaving_, 0) == 0) syscall(SYS_sched_yield);
  leaving_ = 0;
}

uint64_t& Scheduler::Process() { return current->process; }

void Scheduler::SetLagging(uint64_t process, bool lagging) {
  if (lagging)
    lagging_.insert(process);
  else
    lagging_.erase(process);
}

void Scheduler::SetStopped(uint64_t process, bool stopped) {
  if (stopped)
    stopped_.insert(process);
  else
    stopped_.erase(process);
}

bool Scheduler::StandsStill(const Thread& thread) const {
  const bool waits = thread.descriptors || thread.deadline != kNever;
  return waits && stopped_.contains(thread.process) &&
         !HoldsUpOthers(thread.handle, thread.process);
}

bool Scheduler::Ended(const Thread* thread) { return thread->ended; }

void Scheduler::Forget(Thread* thread) {
  std::vector<std::unique_ptr<Thread>>& threads = Get().threads_;
  std::erase_if(threads, [&](const auto& each) { return each.get() == thread; });
}

bool Scheduler::IsReady(Thread& thread) {
  if (thread.ended) return false;
  if (thread.ready == nullptr || now_ >= thread.deadline) return true;
  if (thread.descriptors && thread.looked == descriptor_changes_) return false;
  if ((*thread.ready)()) return true;
  thread.looked = descriptor_changes_;
  return false;
}

// The thread to go on. If none can, the clock moves until one can.
Scheduler::Thread* Scheduler::Next() {
  while (true) {
    std::vector<Thread*> ready, lagging;
    uint64_t earliest = kNever;
    for (const auto& each : threads_) {
      if (each->ended || StandsStill(*each)) continue;
      if (IsReady(*each))
        (lagging_.contains(each->process) ? lagging : ready).push_back(each.get());
      earliest = std::min(earliest, each->deadline);
    }
    if (ready.empty()) ready.swap(lagging);
    if (!ready.empty()) {
      Thread* const next = ready[Choose(ready.size())];
      Note(next->number ^ now_);
      return next;
    }
    if (earliest == kNever) Stuck();
    now_ = std::max(now_, earliest);
  }
}

void Scheduler::SwitchTo(Thread* next) {
  if (next == current) return;
  Thread* const self = current;
  sem_post(&next->baton);
  AwaitTurn(self);
}

void Scheduler::Point() {
  if (Choose(kPointsPerSwitch) == 0) SwitchTo(Next());
}

bool Scheduler::Wait(const std::function<bool()>& ready, uint64_t deadline) {
  return WaitAs(ready, deadline, false);
}

bool Scheduler::WaitForDescriptors(const std::function<bool()>& ready, uint64_t deadline) {
  return WaitAs(ready, deadline, true);
}

bool Scheduler::WaitAs(const std::function<bool()>& ready, uint64_t deadline, bool descriptors) {
  Point();
  while (!ready()) {
    if (now_ >= deadline) return false;
    current->ready = &ready;
    current->deadline = deadline;
    current->descriptors = descriptors;
    current->looked = descriptor_changes_;
    SwitchTo(Next());
    current->ready = nullptr;
    current->deadline = kNever;
    current->descriptors = false;
  }
  return true;
}

void Scheduler::Stuck() const {
  std::fprintf(stderr, "all threads wait without a deadline:");
  for (const auto& each : threads_) {
    if (each->ended) continue;
    std::array<char, 16> name{};
    pthread_getname_np(each->handle, name.data(), name.size());
    std::fprintf(stderr, " %s", name.data());
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

}  // namespace hyperloop::simulation
