#include "softrnic/daemon/flush_threads.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace hyperloop::softrnic {

// The ranges that one client has to flush. A lane exists until its thread has nothing to do and the
// client is gone. So a client that comes again while its disk hangs gets the same lane.
struct FlushThreads::Lane {
  struct Task {
    FileRange range;
    std::shared_ptr<FlushJob> job;
  };
  std::deque<Task> tasks;
  size_t begun = 0;  // not in `tasks` any more, and not done
  std::condition_variable changed;
  bool gone = false;
};

struct FlushThreads::State {
  // Runs the client's tasks until it is gone.
  void Run(uint64_t client, const std::shared_ptr<Lane>& lane);
  void RunTask(Lane::Task task);
  // Makes the lanes' threads.
  static void MakeThreads(const std::shared_ptr<State>& state);

  std::function<bool(const FileRange&)> make_durable;
  std::function<void()> wake, released;
  std::mutex mutex;  // guards what follows, and the lanes; never held for long
  std::condition_variable changed;
  std::map<uint64_t, std::shared_ptr<Lane>> lanes;
  std::vector<std::pair<uint64_t, std::shared_ptr<Lane>>> without_thread;
  size_t tasks = 0;
  bool stopped = false;
  std::mutex wake_mutex;  // held while `wake` runs; never taken by the engine's thread
  bool wakes_nobody = false;
};

void FlushThreads::State::RunTask(Lane::Task task) {
  if (!make_durable(task.range)) task.job->failed.store(true, std::memory_order_relaxed);
  task.range.owner.reset();
  released();
  if (task.job->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::lock_guard<std::mutex> lock(wake_mutex);
  if (!wakes_nobody) wake();
}

void FlushThreads::State::Run(uint64_t client, const std::shared_ptr<Lane>& lane) {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    lane->changed.wait(lock, [&] { return !lane->tasks.empty() || lane->gone || stopped; });
    if (stopped) return;
    if (lane->tasks.empty()) {
      lanes.erase(client);
      return;
    }
    Lane::Task task = std::move(lane->tasks.front());
    lane->tasks.pop_front();
    ++lane->begun;
    lock.unlock();
    RunTask(std::move(task));
    lock.lock();
    --lane->begun;
    --tasks;
  }
}

void FlushThreads::State::MakeThreads(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  for (;;) {
    state->changed.wait(lock, [&] { return !state->without_thread.empty() || state->stopped; });
    if (state->stopped) return;
    const uint64_t client = state->without_thread.back().first;
    const std::shared_ptr<Lane> lane = state->without_thread.back().second;
    lock.unlock();
    bool made = true;
    try {
      std::thread([state, client, lane] { state->Run(client, lane); }).detach();
    } catch (const std::system_error&) {
      made = false;  // the system has no more threads: the client's READs wait until it has one
    } catch (const std::bad_alloc&) {
      made = false;  // nor memory for one
    }
    lock.lock();
    if (made) {
      std::erase_if(state->without_thread, [&](const auto& each) { return each.second == lane; });
    } else {
      state->changed.wait_for(lock, std::chrono::milliseconds(10));
    }
  }
}

FlushThreads::FlushThreads(std::function<bool(const FileRange&)> make_durable)
    : state_(std::make_shared<State>()) {
  state_->make_durable = std::move(make_durable);
}

FlushThreads::~FlushThreads() { Stop(); }

void FlushThreads::Start(std::function<void()> wake, std::function<void()> released) {
  state_->wake = std::move(wake);
  state_->released = std::move(released);
  std::thread([state = state_] { State::MakeThreads(state); }).detach();
}

void FlushThreads::Stop() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopped = true;
    state_->changed.notify_all();
    for (auto& [client, lane] : state_->lanes) lane->changed.notify_all();
  }
  std::lock_guard<std::mutex> lock(state_->wake_mutex);
  state_->wakes_nobody = true;
}

bool FlushThreads::Flush(uint64_t client, FileRange range, std::shared_ptr<FlushJob> job) try {
  std::lock_guard<std::mutex> lock(state_->mutex);
  auto found = state_->lanes.find(client);
  if (state_->tasks >= kMaxTasks ||
      (found == state_->lanes.end() && state_->lanes.size() >= kMaxClients))
    return false;
  if (found == state_->lanes.end()) {
    state_->without_thread.reserve(state_->without_thread.size() + 1);
    found = state_->lanes.emplace(client, std::make_shared<Lane>()).first;
    state_->without_thread.push_back({client, found->second});
    state_->changed.notify_one();
  }
  Lane& lane = *found->second;
  if (lane.tasks.size() + lane.begun >= kMaxTasksOfClient) return false;
  lane.tasks.push_back({std::move(range), std::move(job)});
  ++state_->tasks;
  lane.gone = false;
  lane.changed.notify_one();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void FlushThreads::Gone(uint64_t client) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  const auto lane = state_->lanes.find(client);
  if (lane == state_->lanes.end()) return;
  lane->second->gone = true;
  lane->second->changed.notify_one();
}

}  // namespace hyperloop::softrnic
