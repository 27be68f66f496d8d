#include "softrnic/daemon/flush_threads.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace hyperloop::softrnic {

// What one client has to flush.
struct FlushThreads::Lane {
  struct Task {
    FileRange range;
    std::shared_ptr<FlushJob> job;
  };
  std::deque<Task> tasks;
  std::condition_variable changed;
  bool gone = false;
};

struct FlushThreads::State {
  // Runs `lane` until its client is gone; `once`: until it has nothing to do.
  static void Run(const std::shared_ptr<State>& state, const std::shared_ptr<Lane>& lane,
                  bool once);
  // Makes the lanes' threads.
  static void MakeThreads(const std::shared_ptr<State>& state);

  std::function<bool(const FileRange&)> make_durable;
  std::mutex mutex;  // guards what follows, and the lanes
  std::function<void()> wake;
  std::condition_variable changed;
  std::map<uint64_t, std::shared_ptr<Lane>> lanes;
  std::vector<std::shared_ptr<Lane>> without_thread;
  bool stopped = false;
};

void FlushThreads::State::Run(const std::shared_ptr<State>& state,
                              const std::shared_ptr<Lane>& lane, bool once) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    lane->changed.wait(
        lock, [&] { return once || !lane->tasks.empty() || lane->gone || state->stopped; });
    if (lane->tasks.empty() || state->stopped) return;
    Lane::Task task = std::move(lane->tasks.front());
    lane->tasks.pop_front();
    lock.unlock();
    if (!state->make_durable(task.range)) task.job->failed.store(true, std::memory_order_relaxed);
    task.range.owner.reset();
    const bool last = task.job->left.fetch_sub(1, std::memory_order_acq_rel) == 1;
    lock.lock();
    if (last && !state->stopped) state->wake();
  }
}

void FlushThreads::State::MakeThreads(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return !state->without_thread.empty() || state->stopped; });
    if (state->stopped) return;
    const std::shared_ptr<Lane> lane = std::move(state->without_thread.back());
    state->without_thread.pop_back();
    lock.unlock();
    bool made = true;
    try {
      std::thread([state, lane] { Run(state, lane, /*once=*/false); }).detach();
    } catch (const std::system_error&) {  // the system's limit of threads: in turn, here
      made = false;
      Run(state, lane, /*once=*/true);
    }
    lock.lock();
    if (!made && !lane->gone) state->without_thread.push_back(lane);
    // Until there are threads again, not as fast as the processor can.
    if (!made) state->changed.wait_for(lock, std::chrono::milliseconds(1));
  }
}

FlushThreads::FlushThreads(std::function<bool(const FileRange&)> make_durable)
    : state_(std::make_shared<State>()) {
  state_->make_durable = std::move(make_durable);
}

FlushThreads::~FlushThreads() { Stop(); }

void FlushThreads::Start(std::function<void()> wake) {
  state_->wake = std::move(wake);
  std::thread([state = state_] { State::MakeThreads(state); }).detach();
}

void FlushThreads::Stop() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
  for (auto& [client, lane] : state_->lanes) lane->changed.notify_all();
}

void FlushThreads::Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  std::shared_ptr<Lane>& lane = state_->lanes[client];
  if (lane == nullptr) {
    lane = std::make_shared<Lane>();
    state_->without_thread.push_back(lane);
    state_->changed.notify_one();
  }
  lane->tasks.push_back({std::move(range), std::move(job)});
  lane->changed.notify_one();
}

void FlushThreads::Gone(uint64_t client) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  const auto lane = state_->lanes.find(client);
  if (lane == state_->lanes.end()) return;
  lane->second->gone = true;
  lane->second->changed.notify_one();
  state_->lanes.erase(lane);
}

}  // namespace hyperloop::softrnic
