#include "softrnic/daemon/client_threads.h"

#include <chrono>
#include <map>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "hyperloop/core/mutex.h"

namespace hyperloop::softrnic {
namespace {

constexpr std::chrono::milliseconds kTryAgain{10};

}  // namespace

// What one client has to do. A lane exists until its thread ends. So a client that comes again
// while a task of it hangs gets the same lane.
struct ClientThreads::Lane {
  Tasks tasks;
  size_t begun = 0;  // not in `tasks` any more, and not done
  ConditionVariable changed;
  bool gone = false;
};

struct ClientThreads::State {
  explicit State(const Options& o) : options(o) {}

  bool Add(Tasks& task) HL_REQUIRES(mutex);
  bool AddLate() HL_REQUIRES(mutex);
  bool MakeThread(const std::shared_ptr<State>& self) HL_REQUIRES(mutex);

  // The lanes' threads, and the one that makes them.
  void Run(uint64_t client, const std::shared_ptr<Lane>& lane);
  static void MakeThreads(const std::shared_ptr<State>& state);

  const Options options;
  Mutex mutex;  // also guards what is in the lanes; never held for long
  ConditionVariable changed;
  std::map<uint64_t, std::shared_ptr<Lane>> lanes HL_GUARDED_BY(mutex);
  std::vector<std::pair<uint64_t, std::shared_ptr<Lane>>> without_thread HL_GUARDED_BY(mutex);
  Tasks late HL_GUARDED_BY(mutex);  // there was no room or memory for them
  size_t tasks HL_GUARDED_BY(mutex) = 0;
  bool stopped HL_GUARDED_BY(mutex) = false;
};

bool ClientThreads::State::Add(Tasks& task) try {
  const uint64_t client = task.front().client;
  auto found = lanes.find(client);
  if (tasks >= options.all || (found == lanes.end() && lanes.size() >= options.clients))
    return false;
  if (found == lanes.end()) {
    without_thread.reserve(without_thread.size() + 1);
    found = lanes.emplace(client, std::make_shared<Lane>()).first;
    without_thread.push_back({client, found->second});
    changed.notify_one();
  }
  Lane& lane = *found->second;
  if (lane.tasks.size() + lane.begun >= options.of_client) return false;
  lane.tasks.splice(lane.tasks.end(), task);
  ++tasks;
  lane.gone = !options.stay;
  lane.changed.notify_one();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// False: some are still late.
bool ClientThreads::State::AddLate() {
  for (size_t left = late.size(); left != 0; --left) {
    Tasks task;
    task.splice(task.end(), late, late.begin());
    if (!Add(task)) late.splice(late.end(), task);
  }
  return late.empty();
}

// False: the system has no thread, or no memory for one, now.
bool ClientThreads::State::MakeThread(const std::shared_ptr<State>& self) {
  const uint64_t client = without_thread.back().first;
  const std::shared_ptr<Lane> lane = without_thread.back().second;
  mutex.unlock();
  bool made = true;
  try {
    std::thread([self, client, lane] { self->Run(client, lane); }).detach();
  } catch (const std::system_error&) {
    made = false;
  } catch (const std::bad_alloc&) {
    made = false;
  }
  mutex.lock();
  if (made) std::erase_if(without_thread, [&](const auto& each) { return each.second == lane; });
  return made;
}

void ClientThreads::State::MakeThreads(const std::shared_ptr<State>& state) {
  MutexLock lock(state->mutex);
  const auto waiting = [&state]() HL_REQUIRES(state->mutex) {
    return !state->without_thread.empty() || !state->late.empty();
  };
  for (;;) {
    state->changed.wait(state->mutex,
                        [&]() HL_REQUIRES(state->mutex) { return waiting() || state->stopped; });
    if (!waiting()) return;
    bool all = state->AddLate();
    if (!state->without_thread.empty()) all &= state->MakeThread(state);
    if (!all) state->changed.wait_for(state->mutex, kTryAgain);
  }
}

void ClientThreads::State::Run(uint64_t client, const std::shared_ptr<Lane>& lane) {
  MutexLock lock(mutex);
  for (;;) {
    lane->changed.wait(
        mutex, [&]() HL_REQUIRES(mutex) { return !lane->tasks.empty() || lane->gone || stopped; });
    if (lane->tasks.empty()) {
      lanes.erase(client);
      return;
    }
    Tasks task;
    task.splice(task.end(), lane->tasks, lane->tasks.begin());
    ++lane->begun;
    lock.unlock();
    task.front().run();
    task.clear();
    lock.lock();
    --lane->begun;
    --tasks;
  }
}

ClientThreads::ClientThreads(Options options) : state_(std::make_shared<State>(options)) {}

ClientThreads::~ClientThreads() { Stop(); }

void ClientThreads::Start() {
  std::thread([state = state_] { State::MakeThreads(state); }).detach();
}

void ClientThreads::Stop() {
  const MutexLock lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
  for (auto& [client, lane] : state_->lanes) lane->changed.notify_all();
}

bool ClientThreads::TryAdd(Tasks& task) noexcept {
  const MutexLock lock(state_->mutex);
  return state_->Add(task);
}

void ClientThreads::Add(Tasks task) noexcept {
  const MutexLock lock(state_->mutex);
  if (state_->Add(task)) return;
  state_->late.splice(state_->late.end(), task);
  state_->changed.notify_one();
}

void ClientThreads::Gone(uint64_t client) {
  const MutexLock lock(state_->mutex);
  const auto lane = state_->lanes.find(client);
  if (lane == state_->lanes.end()) return;
  lane->second->gone = true;
  lane->second->changed.notify_one();
}

}  // namespace hyperloop::softrnic
