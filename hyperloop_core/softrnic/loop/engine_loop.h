// EngineLoop drives an Engine from one thread: it takes turns of bounded work, spins for a bounded
// time when there is none, and then sleeps.
//
// hyperloop-rnicd and the thread of EmbeddedRnic use it. The engine belongs to the thread inside
// Run; other threads reach it through Submit. While that thread sleeps, a guest may run the engine
// in its place (RunWhileAsleep): whoever has brought work does it at once, which spares a wake-up
// of the loop's thread and its way back.
//
// Sleep protocol (no lost wake-ups). The loop stores engine_sleeping = 1 in every page, then looks
// once more for doorbells, then waits. A client (RingUar and KickEngine in device_context.h) stores
// its doorbell, then looks at engine_sleeping. All four accesses are sequentially consistent, so at
// least one side sees the other's store.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "softrnic/commands/commands.h"
#include "softrnic/engine/engine.h"

namespace hyperloop::softrnic {

struct EngineLoopOptions {
  uint32_t spin_us = 50;  // how long to look for work before sleeping; 0: sleep at once
  // The longest sleep, so that the heartbeat moves; -1: no limit.
  int sleep_ms = 250;
  // The processor to which the caller pins Run's thread. Clients are told it. −1: none.
  int cpu = -1;
  // Whether RunWhileAsleep runs the engine. The threads that call it should have the priority of
  // Run's thread, which may have to wait for them.
  bool allow_guests = false;
  // For tests: called on the loop's thread when it has found no work and is about to mark itself
  // sleeping.
  std::function<void()> about_to_sleep = nullptr;
};

class EngineLoop {
 public:
  // Whoever runs the engine writes them; any thread may read them.
  struct Counters {
    std::atomic<uint64_t> turns{0};       // calls of Engine::Run, those that found nothing included
    std::atomic<uint64_t> idle_turns{0};  // that found nothing
    std::atomic<uint64_t> sleeps{0};      // waits in the kernel
    std::atomic<uint64_t> guests{0};      // calls of RunWhileAsleep that ran the engine
    // How often more than 1 ms passed between two looks at the clock, without a sleep.
    std::atomic<uint64_t> host_stalls{0};
  };

  // `engine` outlives the loop.
  static Result<std::unique_ptr<EngineLoop>> Create(Engine* engine, EngineLoopOptions options);
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Runs the engine on the calling thread until Stop.
  void Run();
  // Ends Run after the turn in progress. Any thread may call it, and signal handlers.
  void Stop();
  // Runs `task` on the loop's thread between two turns and returns when it has run. Run must be in
  // progress, or begin, and not end before that. Any thread but the loop's may call it.
  void Submit(const std::function<void()>& task);
  // If the loop sleeps, runs the engine on the calling thread until it finds no work, for a bounded
  // number of turns; what is left then wakes the loop, which goes on before another guest may.
  // False: it did not, because the loop is awake or guests are not allowed. WakeIfSleeping then
  // makes sure that the loop finds what the caller has stored. Any thread but the loop's may call
  // it.
  bool RunWhileAsleep();

  // Add and remove pages that are marked while the loop sleeps, and descriptors (eventfds) that end
  // a sleep when they become readable. Call these on the loop's thread (in a Submit), or while Run
  // is not in progress. A wake source must stay open until it is removed.
  void AddPage(UarPage* page);
  void RemovePage(UarPage* page);
  Status AddWakeSource(int event_fd);
  void RemoveWakeSource(int event_fd);
  // Marks every page dead for good: clients see that the engine stopped in order.
  void MarkPagesDead();

  // Ends a sleep. Any thread may call it, and signal handlers.
  void Wake();
  // The same, without a system call while the loop is awake. The caller must before have stored,
  // sequentially consistent, what Engine::DoorbellPending looks at. Any thread may call it.
  void WakeIfSleeping() {
    if (sleeping_.load(std::memory_order_seq_cst) != 0) Wake();
  }
  const Counters& counters() const { return counters_; }
  int cpu() const { return cpu_; }  // EngineLoopOptions::cpu

 private:
  struct Task {
    const std::function<void()>* body;
    std::atomic<bool> done{false};
  };

  EngineLoop(Engine* engine, EngineLoopOptions options, UniqueFd epoll, UniqueFd event);
  void RunTask() HL_REQUIRES(running_);
  void Sleep() HL_REQUIRES(running_);
  bool LookAgain() HL_REQUIRES(running_);
  void RunAsGuest() HL_REQUIRES(running_);
  void Beat(uint64_t now_ns) HL_REQUIRES(running_);
  void SetSleeping(uint32_t value) HL_REQUIRES(running_);
  void NoteCpu() HL_REQUIRES(running_);

  Engine* const engine_;
  const uint64_t spin_ns_;
  const int sleep_ms_;
  const int cpu_;
  const bool allow_guests_;
  const std::function<void()> about_to_sleep_;
  const UniqueFd epoll_fd_;
  const UniqueFd event_fd_;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleeping_{0};  // as engine_sleeping, for this process's threads
  std::atomic<Task*> mailbox_{nullptr};
  Mutex submit_mutex_;  // one task in the mailbox at a time
  // Held by whoever runs the engine: by Run's thread except while it waits in the kernel.
  Mutex running_;
  bool looks_soon_ HL_GUARDED_BY(running_) = false;  // the wait in the kernel is a short one
  bool had_guests_ HL_GUARDED_BY(running_) = false;  // since the wait before
  // Run's thread has left the kernel or was told to, so that guests must leave the engine to it.
  std::atomic<bool> coming_{false};
  std::vector<UarPage*> pages_;
  uint64_t last_beat_ns_ HL_GUARDED_BY(running_) = 0;
  Counters counters_;
};

}  // namespace hyperloop::softrnic
