// Scheduler: runs the threads of this process one at a time, under a clock of its own. Which thread
// runs next follows from a seed alone, so that one seed always gives the same run.
//
// From Begin on, the calling thread and all threads that it starts are simulated. Whatever a thread
// waits for (interpose_*.cc: mutexes, conditions, futexes, sleeps, descriptors), the others go on
// meanwhile. When all of them wait, the clock moves to the earliest deadline, so that a run takes
// no longer than its computations.
//
// All simulated threads are contexts (ucontext.h) of one thread of the kernel, which changes from
// one to another much faster than the kernel does between threads of its own. So what C++ declares
// thread_local exists once for all of them.
//
// A thread belongs to the process of the thread that started it: processes here are no more than
// numbers, by which the threads and connections of one can be told from others.
//
// At each point where a thread could wait, another one may go on in its place. Between two such
// points a thread is not interrupted.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hyperloop::simulation {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

class Scheduler {
 public:
  // The scheduler of this process.
  static Scheduler& Get();
  // Whether the calling thread is simulated.
  static bool Simulates();

  // Begins the simulation; at most once in a process.
  void Begin(uint64_t seed);

  // Nanoseconds since Begin, plus a constant.
  uint64_t Now() const { return now_; }
  // Moves the clock on, as if the calling thread had computed for so long.
  void Pass(uint64_t nanoseconds) { now_ += nanoseconds; }

  // Lets another thread go on, if the seed says so.
  void Point();
  // Lets the others go on until `ready` holds or the clock has reached `deadline`. Returns whether
  // `ready` held. `ready` has no effects, and may be called by any thread.
  bool Wait(const std::function<bool()>& ready, uint64_t deadline = kNever);
  // The same for what changes only with these descriptors (see DescriptorChanged).
  bool WaitForDescriptors(const std::function<bool()>& ready, uint64_t deadline,
                          std::vector<int> descriptors);
  // To be called when something has happened that a wait for this descriptor could end by.
  void DescriptorChanged(int descriptor);

  // --- processes; the first thread is of process 0
  uint64_t NewProcess() { return ++newest_process_; }
  // Of the calling thread; may be changed.
  static uint64_t& Process();
  // While a process lags, its threads go on only when no other thread can.
  void SetLagging(uint64_t process, bool lagging);

  // While a process is stopped, each of its threads stands still from its next wait for descriptors
  // or time on. It may finish what others wait for meanwhile, as an RNIC's engine does: a thread
  // goes on while another process waits for a lock that it holds.
  void SetStopped(uint64_t process, bool stopped);

  // A number below `bound`, by the seed.
  uint64_t Choose(uint64_t bound) { return random_() % bound; }
  std::mt19937_64& random() { return random_; }
  // A fingerprint of all that was scheduled or noted so far.
  uint64_t trace() const { return trace_; }
  void Note(uint64_t fact) {
    trace_ = (trace_ ^ fact) * 0x9e3779b97f4a7c15;
    trace_ ^= trace_ >> 29;
  }

  // --- threads, by handles that are no other's while the thread is not forgotten
  // Adds a thread that runs `body(argument)`.
  pthread_t Start(void* (*body)(void*), void* argument);
  static pthread_t Self();
  static bool Ended(pthread_t thread);
  // Of a thread that has ended: what its body returned. There is no such thread from then on.
  void* Forget(pthread_t thread);
  // For reports.
  static void SetName(pthread_t thread, const char* name);
  // How long the calling thread waited when it yielded last, and until when.
  struct Yield {
    uint64_t pause = 0, end = 0;
  };
  static Yield& LastYield();

 private:
  struct Thread;
  static Thread* Of(pthread_t thread) { return reinterpret_cast<Thread*>(thread); }
  Thread* NewThread();
  [[noreturn]] static void Run();
  bool IsReady(Thread& thread);
  bool MayHaveChanged(const Thread& thread) const;
  bool StandsStill(const Thread& thread) const;
  Thread* Next();
  void SwitchTo(Thread* next);
  [[noreturn]] void Stuck() const;
  bool WaitAs(const std::function<bool()>& ready, uint64_t deadline, std::vector<int> descriptors);

  static constinit thread_local Thread* current_;

  std::mt19937_64 random_;
  uint64_t now_ = 1'000'000'000'000;
  uint64_t trace_ = 0;
  uint64_t descriptor_changes_ = 1;
  std::vector<uint64_t> changed_;  // by descriptor: the number of its last change
  uint64_t next_number_ = 0;
  std::vector<std::unique_ptr<Thread>> threads_;
  uint64_t newest_process_ = 0;
  std::set<uint64_t> lagging_, stopped_;
  std::vector<Thread*> ready_, ready_but_lagging_;  // Next's
};

// The calling thread is of another process meanwhile.
class AsProcess {
 public:
  explicit AsProcess(uint64_t process) : before_(std::exchange(Scheduler::Process(), process)) {}
  ~AsProcess() { Scheduler::Process() = before_; }
  AsProcess(const AsProcess&) = delete;
  AsProcess& operator=(const AsProcess&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace hyperloop::simulation
