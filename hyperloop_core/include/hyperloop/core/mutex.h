// Mutexes whose use the compiler checks: the standard library's, with Clang's thread-safety
// annotations. A field says which mutex guards it (HL_GUARDED_BY), a function which mutexes its
// caller holds (HL_REQUIRES), and scripts/thread-safety refuses code that does otherwise. Other
// compilers ignore the annotations. Locking costs what it costs with the standard types; the names
// of their functions are kept.
//
// The analysis knows a mutex by its expression and does not look into calls or lambdas. A lambda
// that runs under a lock says so behind its parameters: `[this]() HL_REQUIRES(mutex_) { … }`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <utility>

#if defined(__clang__)
#define HL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define HL_THREAD_ANNOTATION(x)
#endif

#define HL_CAPABILITY(name) HL_THREAD_ANNOTATION(capability(name))
#define HL_SCOPED_CAPABILITY HL_THREAD_ANNOTATION(scoped_lockable)
// Of a field: it is read and written (or what it points to is) only under the mutex.
#define HL_GUARDED_BY(mutex) HL_THREAD_ANNOTATION(guarded_by(mutex))
#define HL_PT_GUARDED_BY(mutex) HL_THREAD_ANNOTATION(pt_guarded_by(mutex))
// Of a function: the caller holds the mutexes (or shares them); the caller does not hold them.
#define HL_REQUIRES(...) HL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define HL_REQUIRES_SHARED(...) HL_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define HL_EXCLUDES(...) HL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a function: it takes or releases the mutexes for its caller.
#define HL_ACQUIRE(...) HL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define HL_ACQUIRE_SHARED(...) HL_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define HL_TRY_ACQUIRE(...) HL_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define HL_RELEASE(...) HL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define HL_RELEASE_SHARED(...) HL_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
// Of a function: what it returns is this mutex.
#define HL_RETURN_CAPABILITY(mutex) HL_THREAD_ANNOTATION(lock_returned(mutex))
// Of a function: where it returned, the mutex is held.
#define HL_ASSERT_CAPABILITY(mutex) HL_THREAD_ANNOTATION(assert_capability(mutex))
// Of a function that the analysis cannot follow. The reason stands beside it.
#define HL_NO_THREAD_SAFETY_ANALYSIS HL_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace hyperloop {

// A std::mutex.
class HL_CAPABILITY("mutex") Mutex {
 public:
  void lock() HL_ACQUIRE() { mutex_.lock(); }
  void unlock() HL_RELEASE() { mutex_.unlock(); }
  bool try_lock() HL_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Tells the analysis what it cannot see, in a lambda that a function calls under the lock. Checks
  // nothing.
  void known_held() const HL_ASSERT_CAPABILITY(this) {}

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

// A std::shared_mutex.
class HL_CAPABILITY("mutex") SharedMutex {
 public:
  void lock() HL_ACQUIRE() { mutex_.lock(); }
  void unlock() HL_RELEASE() { mutex_.unlock(); }
  void lock_shared() HL_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() HL_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a Mutex or SharedMutex to the end of its scope, but for a while in between if asked.
template <typename M>
class HL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(M& mutex) HL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // For a mutex that try_lock() took.
  MutexLock(M& mutex, std::adopt_lock_t) HL_REQUIRES(mutex) : mutex_(mutex) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() HL_RELEASE() {
    if (held_) mutex_.unlock();
  }

  void unlock() HL_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() HL_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  M& mutex_;
  bool held_ = true;
};

// Releases a held Mutex to the end of its scope, and then takes it again.
class HL_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) HL_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;
  ~MutexUnlock() HL_RELEASE() { mutex_.lock(); }

 private:
  Mutex& mutex_;
};

// Shares a SharedMutex to the end of its scope.
class HL_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) HL_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;
  ~SharedLock() HL_RELEASE() { mutex_.unlock_shared(); }

 private:
  SharedMutex& mutex_;
};

// A std::condition_variable. The waiting functions take the held mutex itself, not its lock, and
// hold it again when they return. The analysis cannot see that the mutex which a condition requires
// is the one that it is called under, hence the exemptions.
class ConditionVariable {
 public:
  void notify_one() { variable_.notify_one(); }
  void notify_all() { variable_.notify_all(); }

  void wait(Mutex& mutex) HL_REQUIRES(mutex) {
    Held held(mutex);
    variable_.wait(held.lock);
  }
  template <typename Condition>
  void wait(Mutex& mutex, Condition condition) HL_REQUIRES(mutex) HL_NO_THREAD_SAFETY_ANALYSIS {
    while (!condition()) wait(mutex);
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& duration)
      HL_REQUIRES(mutex) {
    Held held(mutex);
    return variable_.wait_for(held.lock, duration);
  }
  template <typename Rep, typename Period, typename Condition>
  bool wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& duration,
                Condition condition) HL_REQUIRES(mutex) HL_NO_THREAD_SAFETY_ANALYSIS {
    Held held(mutex);
    return variable_.wait_for(held.lock, duration, std::move(condition));
  }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& until)
      HL_REQUIRES(mutex) {
    Held held(mutex);
    return variable_.wait_until(held.lock, until);
  }
  template <typename Clock, typename Duration, typename Condition>
  bool wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& until,
                  Condition condition) HL_REQUIRES(mutex) HL_NO_THREAD_SAFETY_ANALYSIS {
    Held held(mutex);
    return variable_.wait_until(held.lock, until, std::move(condition));
  }

 private:
  // The lock that the standard type asks for: it takes over a held mutex and leaves it held.
  struct Held {
    explicit Held(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Held() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable variable_;
};

}  // namespace hyperloop
