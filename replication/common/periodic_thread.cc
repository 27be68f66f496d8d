#include "common/periodic_thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <utility>

namespace hyperloop {

PeriodicThread::PeriodicThread(std::string name, Work work, int avoid_cpu)
    : name_(std::move(name)), work_(std::move(work)), avoid_cpu_(avoid_cpu) {
  // This thread must not handle the host program's signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PeriodicThread::RequestStop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
}

PeriodicThread::~PeriodicThread() {
  RequestStop();
  thread_.join();
}

void PeriodicThread::Wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void PeriodicThread::AvoidCpu() const {
  cpu_set_t allowed;
  if (avoid_cpu_ < 0 || avoid_cpu_ >= CPU_SETSIZE ||
      sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return;
  }
  CPU_CLR(avoid_cpu_, &allowed);
  if (CPU_COUNT(&allowed) != 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

void PeriodicThread::Run() {
  pthread_setname_np(pthread_self(), name_.c_str());
  AvoidCpu();
  MutexLock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    const std::chrono::milliseconds pause = work_();
    lock.lock();
    wake_.wait_for(mutex_, pause, [this]() HL_REQUIRES(mutex_) { return stop_ || woken_; });
    woken_ = false;
  }
}

}  // namespace hyperloop
