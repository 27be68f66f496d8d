// Cost of an idle turn: Engine::Run (one load per context), one load of the mailbox, one of the
// stop flag; the clock is read every kTurnsPerClock turns.
#include "softrnic/loop/engine_loop.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/cpu_pause.h"
#include "base/signal_event.h"
#include "base/steady_ns.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kStepsPerTurn = 64;
constexpr uint32_t kTurnsPerClock = 8;
constexpr uint64_t kStallNs = 1'000'000;
constexpr uint64_t kBeatNs = 1'000'000;
constexpr int kRetryMs = 1;
constexpr size_t kGuestTurns = 8;

// A counter with one writer.
void Add(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->store(counter->load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<EngineLoop>> EngineLoop::Create(Engine* engine, EngineLoopOptions options) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return FromErrno(errno, "epoll_create1");
  UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return FromErrno(errno, "eventfd");
  std::unique_ptr<EngineLoop> loop(
      new EngineLoop(engine, options, std::move(epoll), std::move(event)));
  HL_RETURN_IF_ERROR(loop->AddWakeSource(loop->event_fd_.get()));
  return loop;
}

EngineLoop::EngineLoop(Engine* engine, EngineLoopOptions options, UniqueFd epoll, UniqueFd event)
    : engine_(engine),
      spin_ns_(uint64_t{options.spin_us} * 1000),
      sleep_ms_(options.sleep_ms),
      cpu_(options.cpu),
      allow_guests_(options.allow_guests),
      about_to_sleep_(std::move(options.about_to_sleep)),
      epoll_fd_(std::move(epoll)),
      event_fd_(std::move(event)) {}

void EngineLoop::Run() {
  MutexLock running(running_);
  uint64_t clock = SteadyNs();
  uint64_t idle_since = clock;
  bool worked = false;
  uint32_t turns = 0;
  uint32_t idle_turns = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const size_t steps = engine_->Run(kStepsPerTurn);
    if (mailbox_.load(std::memory_order_relaxed) != nullptr) {
      RunTask();
      worked = true;
      clock = SteadyNs();  // a task may take long without the host being at fault
    }
    if (steps != 0) {
      worked = true;
    } else {
      ++idle_turns;
      CpuPause();
    }
    if (++turns % kTurnsPerClock != 0 && (steps != 0 || spin_ns_ != 0)) continue;
    Add(&counters_.turns, turns);
    Add(&counters_.idle_turns, idle_turns);
    turns = idle_turns = 0;
    const uint64_t now = SteadyNs();
    if (now - clock > kStallNs) Add(&counters_.host_stalls, 1);
    clock = now;
    Beat(now);
    if (worked) {
      worked = false;
      idle_since = now;
      continue;
    }
    if (now - idle_since < spin_ns_) continue;
    Sleep();
    clock = SteadyNs();
    idle_since = clock;
  }
  if (mailbox_.load(std::memory_order_acquire) != nullptr) RunTask();
}

void EngineLoop::Stop() {
  stop_.store(true, std::memory_order_relaxed);
  Wake();
}

void EngineLoop::Wake() { SignalEvent(event_fd_.get()); }

void EngineLoop::Submit(const std::function<void()>& task) {
  MutexLock lock(submit_mutex_);
  Task entry{.body = &task};
  mailbox_.store(&entry, std::memory_order_seq_cst);
  // Pairs with Sleep: either this load sees its store, or its look into the mailbox sees ours.
  if (sleeping_.load(std::memory_order_seq_cst) != 0) Wake();
  entry.done.wait(false, std::memory_order_acquire);
  // The loop's thread may still be inside notify_one on `entry`: it is done with it when the
  // mailbox is empty.
  while (mailbox_.load(std::memory_order_acquire) != nullptr) CpuPause();
}

void EngineLoop::RunTask() {
  Task* task = mailbox_.load(std::memory_order_acquire);
  (*task->body)();
  task->done.store(true, std::memory_order_release);
  task->done.notify_one();
  mailbox_.store(nullptr, std::memory_order_release);
}

void EngineLoop::SetSleeping(uint32_t value) {
  sleeping_.store(value, std::memory_order_seq_cst);
  for (UarPage* page : pages_)
    std::atomic_ref(page->header.engine_sleeping).store(value, std::memory_order_seq_cst);
}

// Tells clients where the loop's thread is, which is what they wake.
void EngineLoop::NoteCpu() {
  const auto cpu = static_cast<uint32_t>(sched_getcpu());
  for (UarPage* page : pages_)
    std::atomic_ref(page->header.engine_cpu).store(cpu, std::memory_order_relaxed);
}

// Says that the loop sleeps, then looks again; see the protocol at the top of engine_loop.h. The
// turn looks at receives too: a sender that waits for one is woken by a doorbell record alone.
// True: there is something to do.
bool EngineLoop::LookAgain() {
  SetSleeping(1);
  return engine_->Run(kStepsPerTurn) != 0 || engine_->DoorbellPending() ||
         mailbox_.load(std::memory_order_seq_cst) != nullptr ||
         stop_.load(std::memory_order_seq_cst);
}

void EngineLoop::Sleep() {
  if (about_to_sleep_ != nullptr) [[unlikely]]
    about_to_sleep_();
  coming_.store(false, std::memory_order_relaxed);
  NoteCpu();
  if (!LookAgain()) {
    Add(&counters_.sleeps, 1);
    std::array<epoll_event, 16> events;
    // A client that writes its receive counter by itself does not look at engine_sleeping. Where
    // guests run the engine, they start timers, and would have to end this sleep for them.
    looks_soon_ = std::exchange(had_guests_, false) || engine_->RetryPending();
    const int timeout = looks_soon_ ? kRetryMs : sleep_ms_;
    running_.unlock();
    epoll_wait(epoll_fd_.get(), events.data(), static_cast<int>(events.size()), timeout);
    coming_.store(true, std::memory_order_relaxed);
    running_.lock();
    NoteCpu();
  }
  SetSleeping(0);
}

bool EngineLoop::RunWhileAsleep() {
  if (!allow_guests_ || sleeping_.load(std::memory_order_relaxed) == 0 ||
      coming_.load(std::memory_order_relaxed))
    return false;
  if (!running_.try_lock()) return false;
  const MutexLock running(running_, std::adopt_lock);
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return false;
  RunAsGuest();
  return true;
}

// The loop's thread is in the kernel, or waits for running_.
void EngineLoop::RunAsGuest() {
  SetSleeping(0);  // so that clients need not wake a thread that has nothing to do
  had_guests_ = true;
  size_t turns = 1;
  while (engine_->Run(kStepsPerTurn) != 0 && turns < kGuestTurns) ++turns;
  Add(&counters_.turns, turns);
  Add(&counters_.guests, 1);
  if (coming_.load(std::memory_order_relaxed)) return;  // the loop looks at once
  if (!LookAgain() && (looks_soon_ || !engine_->RetryPending())) return;
  // The rest is the loop's: no guest runs the engine until the loop has slept again.
  coming_.store(true, std::memory_order_relaxed);
  SetSleeping(0);
  Wake();
}

void EngineLoop::Beat(uint64_t now_ns) {
  if (now_ns - last_beat_ns_ < kBeatNs) return;
  last_beat_ns_ = now_ns;
  for (UarPage* page : pages_) {
    std::atomic_ref beat(page->header.engine_heartbeat);
    beat.store(beat.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

void EngineLoop::AddPage(UarPage* page) {
  std::atomic_ref(page->header.engine_sleeping).store(0, std::memory_order_relaxed);
  std::atomic_ref(page->header.engine_alive).store(1, std::memory_order_release);
  pages_.push_back(page);
}

void EngineLoop::RemovePage(UarPage* page) { std::erase(pages_, page); }

Status EngineLoop::AddWakeSource(int event_fd) {
  epoll_event event{};
  // Edge triggered: every write ends one wait and nothing need be read, which matters because a
  // client could make a read of the shared descriptor block.
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = event_fd;
  if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, event_fd, &event) != 0) {
    return FromErrno(errno, "watching a client's wake-up descriptor");
  }
  return {};
}

void EngineLoop::RemoveWakeSource(int event_fd) {
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, event_fd, nullptr);
}

void EngineLoop::MarkPagesDead() {
  for (UarPage* page : pages_) {
    std::atomic_ref(page->header.engine_alive).store(0, std::memory_order_release);
  }
}

}  // namespace hyperloop::softrnic
