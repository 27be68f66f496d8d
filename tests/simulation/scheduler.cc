#include "simulation/scheduler.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "simulation/interpose.h"

namespace hyperloop::simulation {
namespace {

// One in so many points lets another thread go on.
constexpr uint64_t kPointsPerSwitch = 8;

// A thread's stack. Whoever leaves it meets memory that nobody may touch.
class Stack {
 public:
  static constexpr size_t kBytes = 1 << 20, kGuard = 4 << 10;

  Stack() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED || mprotect(memory_, kGuard, PROT_NONE) != 0) {
      std::perror("memory for the stack of a simulated thread");
      std::abort();
    }
  }
  ~Stack() { munmap(memory_, kBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  stack_t bounds() const {
    return {.ss_sp = static_cast<std::byte*>(memory_) + kGuard,
            .ss_flags = 0,
            .ss_size = kBytes - kGuard};
  }

 private:
  void* memory_;
};

}  // namespace

struct Scheduler::Thread {
  uint64_t number = 0;
  uint64_t process = 0;
  std::string name;
  // Where it goes on. The first thread has the stack that it came with.
  ucontext_t context;
  std::unique_ptr<Stack> stack;
  void* (*body)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;
  bool ended = false;
  Yield yield;
  // While the thread waits; null: it can go on.
  const std::function<bool()>* ready = nullptr;
  uint64_t deadline = kNever;
  std::vector<int> descriptors;  // by which alone it becomes ready; none: by anything
  uint64_t looked = 0;           // the number of descriptor changes when `ready` was called last

  pthread_t handle() const { return reinterpret_cast<pthread_t>(this); }
};

constinit thread_local Scheduler::Thread* Scheduler::current_ = nullptr;

Scheduler& Scheduler::Get() {
  static Scheduler scheduler;
  return scheduler;
}

bool Scheduler::Simulates() { return current_ != nullptr; }

void Scheduler::Begin(uint64_t seed) {
  random_.seed(seed);
  current_ = NewThread();
}

Scheduler::Thread* Scheduler::NewThread() {
  auto made = std::make_unique<Thread>();
  made->number = next_number_++;
  if (current_ != nullptr) made->process = current_->process;
  threads_.push_back(std::move(made));
  return threads_.back().get();
}

pthread_t Scheduler::Start(void* (*body)(void*), void* argument) {
  Thread* const thread = NewThread();
  thread->body = body;
  thread->argument = argument;
  thread->stack = std::make_unique<Stack>();
  getcontext(&thread->context);
  thread->context.uc_stack = thread->stack->bounds();
  thread->context.uc_link = nullptr;
  makecontext(&thread->context, Run, 0);
  return thread->handle();
}

void Scheduler::Run() {
  current_->result = current_->body(current_->argument);
  current_->ended = true;
  current_ = Get().Next();
  setcontext(&current_->context);
  std::abort();
}

pthread_t Scheduler::Self() { return current_->handle(); }

bool Scheduler::Ended(pthread_t thread) { return Of(thread)->ended; }

void* Scheduler::Forget(pthread_t thread) {
  void* const result = Of(thread)->result;
  std::erase_if(threads_, [&](const auto& each) { return each->handle() == thread; });
  return result;
}

void Scheduler::SetName(pthread_t thread, const char* name) { Of(thread)->name = name; }

Scheduler::Yield& Scheduler::LastYield() { return current_->yield; }

uint64_t& Scheduler::Process() { return current_->process; }

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
  const bool waits = !thread.descriptors.empty() || thread.deadline != kNever;
  return waits && stopped_.contains(thread.process) &&
         !HoldsUpOthers(thread.handle(), thread.process);
}

bool Scheduler::IsReady(Thread& thread) {
  if (thread.ended) return false;
  if (thread.ready == nullptr || now_ >= thread.deadline) return true;
  if (!MayHaveChanged(thread)) return false;
  if ((*thread.ready)()) return true;
  thread.looked = descriptor_changes_;
  return false;
}

bool Scheduler::MayHaveChanged(const Thread& thread) const {
  if (thread.descriptors.empty()) return true;
  return std::ranges::any_of(thread.descriptors, [&](int each) {
    const auto at = static_cast<size_t>(each);
    return at < changed_.size() && changed_[at] > thread.looked;
  });
}

void Scheduler::DescriptorChanged(int descriptor) {
  if (descriptor < 0) return;
  const auto at = static_cast<size_t>(descriptor);
  if (at >= changed_.size()) changed_.resize(at + 1);
  changed_[at] = ++descriptor_changes_;
}

// The thread to go on. If none can, the clock moves until one can.
Scheduler::Thread* Scheduler::Next() {
  while (true) {
    ready_.clear();
    ready_but_lagging_.clear();
    uint64_t earliest = kNever;
    for (const auto& each : threads_) {
      if (each->ended || StandsStill(*each)) continue;
      if (IsReady(*each))
        (lagging_.contains(each->process) ? ready_but_lagging_ : ready_).push_back(each.get());
      earliest = std::min(earliest, each->deadline);
    }
    if (ready_.empty()) ready_.swap(ready_but_lagging_);
    if (!ready_.empty()) {
      Thread* const next = ready_[Choose(ready_.size())];
      Note(next->number ^ now_);
      return next;
    }
    if (earliest == kNever) Stuck();
    now_ = std::max(now_, earliest);
  }
}

void Scheduler::SwitchTo(Thread* next) {
  if (next == current_) return;
  const int error = errno;
  Thread* const self = std::exchange(current_, next);
  swapcontext(&self->context, &next->context);
  errno = error;
}

void Scheduler::Point() {
  if (Choose(kPointsPerSwitch) == 0) SwitchTo(Next());
}

bool Scheduler::Wait(const std::function<bool()>& ready, uint64_t deadline) {
  return WaitAs(ready, deadline, {});
}

bool Scheduler::WaitForDescriptors(const std::function<bool()>& ready, uint64_t deadline,
                                   std::vector<int> descriptors) {
  return WaitAs(ready, deadline, std::move(descriptors));
}

bool Scheduler::WaitAs(const std::function<bool()>& ready, uint64_t deadline,
                       std::vector<int> descriptors) {
  Point();
  if (ready()) return true;
  current_->descriptors = std::move(descriptors);
  current_->deadline = deadline;
  bool is_ready = false;
  while (!is_ready && now_ < deadline) {
    current_->ready = &ready;
    current_->looked = descriptor_changes_;
    SwitchTo(Next());
    current_->ready = nullptr;
    is_ready = ready();
  }
  current_->descriptors.clear();
  current_->deadline = kNever;
  return is_ready;
}

void Scheduler::Stuck() const {
  std::fprintf(stderr, "all threads wait without a deadline:");
  for (const auto& each : threads_) {
    if (each->ended) continue;
    std::fprintf(stderr, " %" PRIu64 " %s", each->number, each->name.c_str());
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

}  // namespace hyperloop::simulation
