#include "softrnic/daemon/flush_threads.h"

#include <new>
#include <utility>

#include "hyperloop/core/mutex.h"

namespace hyperloop::softrnic {

struct FlushThreads::State {
  void Flush(FileRange& range, FlushJob& job);

  std::function<bool(const FileRange&)> make_durable;
  std::function<void()> wake, released;
  Mutex wake_mutex;  // held while `wake` runs; never taken by the engine's thread
  bool wakes_nobody HL_GUARDED_BY(wake_mutex) = false;
};

void FlushThreads::State::Flush(FileRange& range, FlushJob& job) {
  if (!make_durable(range)) job.failed.store(true, std::memory_order_relaxed);
  range.owner.reset();
  released();
  if (job.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const MutexLock lock(wake_mutex);
  if (!wakes_nobody) wake();
}

FlushThreads::FlushThreads(std::function<bool(const FileRange&)> make_durable)
    : state_(std::make_shared<State>()),
      threads_({.clients = kMaxClients,
                .of_client = kMaxTasksOfClient,
                .all = kMaxTasks,
                .stay = true}) {
  state_->make_durable = std::move(make_durable);
}

FlushThreads::~FlushThreads() { Stop(); }

void FlushThreads::Start(std::function<void()> wake, std::function<void()> released) {
  state_->wake = std::move(wake);
  state_->released = std::move(released);
  threads_.Start();
}

void FlushThreads::Stop() {
  threads_.Stop();
  const MutexLock lock(state_->wake_mutex);
  state_->wakes_nobody = true;
}

bool FlushThreads::Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) try {
  ClientThreads::Tasks task(1);
  task.front().client = client;
  task.front().run = [state = state_, range = std::move(range), job = std::move(job)]() mutable {
    state->Flush(range, *job);
  };
  return threads_.TryAdd(task);
} catch (const std::bad_alloc&) {
  return false;
}

void FlushThreads::Gone(uint64_t client) { threads_.Gone(client); }

}  // namespace hyperloop::softrnic
