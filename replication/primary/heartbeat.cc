#include "primary/heartbeat.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>

namespace hyperloop {

Heartbeat::Heartbeat(std::vector<Target> targets, Tick tick, int avoid_cpu)
    : targets_(std::move(targets)), tick_(std::move(tick)), avoid_cpu_(avoid_cpu) {}

void Heartbeat::Start() {
  // The host program's signals are none of this thread's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Heartbeat::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Heartbeat::SetTargets(std::vector<Target> targets) {
  const std::lock_guard lock(targets_mutex_);
  targets_ = std::move(targets);
  lost_.store(false, std::memory_order_relaxed);
}

// A member that cannot be reached only misses beats, and makes nobody else miss one.
void Heartbeat::Beat(uint64_t word) {
  const std::lock_guard lock(targets_mutex_);
  for (const Target& each : targets_) {
    const Status started = each.link->StartWrite(each.word, 0, std::as_bytes(std::span(&word, 1)));
    if (!started.ok() && started.code() != Code::kBusy)
      lost_.store(true, std::memory_order_relaxed);
  }
}

void Heartbeat::AvoidCpu() const {
  cpu_set_t allowed;
  if (avoid_cpu_ < 0 || avoid_cpu_ >= CPU_SETSIZE ||
      sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  CPU_CLR(avoid_cpu_, &allowed);
  if (CPU_COUNT(&allowed) != 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

void Heartbeat::Run() {
  pthread_setname_np(pthread_self(), "hl-heartbeat");
  AvoidCpu();
  // Any start will do as long as the word moves; time makes a restarted owner's differ from its
  // former life's.
  uint64_t word =
      static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  auto next_beat = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    auto now = std::chrono::steady_clock::now();
    if (now >= next_beat) {
      Beat(++word);
      next_beat = now + kInterval;
    }
    const std::chrono::milliseconds tick = tick_ ? tick_() : kInterval;
    now = std::chrono::steady_clock::now();
    lock.lock();
    wake_.wait_until(lock, std::min(next_beat, now + tick), [this] { return stop_; });
  }
}

}  // namespace hyperloop
