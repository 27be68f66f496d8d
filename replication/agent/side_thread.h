// SideThread: work that an agent does beside what it decides, and never waits for. A disk or a
// program that hangs holds up the thread, and nothing else.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "hyperloop/core/mutex.h"

namespace hyperloop::agent {

class SideThread {
 public:
  // `work` owns all that it uses: it may go on when this object is gone.
  explicit SideThread(std::function<void()> work) {
    std::thread([work = std::move(work), end = end_] {
      work();
      const MutexLock lock(end->mutex);
      end->over = true;
      end->changed.notify_all();
    }).detach();
  }
  // How long whoever destroys such a thread's owner may wait for it.
  static constexpr std::chrono::milliseconds kPatienceAtEnd{1000};
  // Whether it ends in that time.
  bool Await(std::chrono::milliseconds patience = kPatienceAtEnd) const {
    End* const end = end_.get();
    const MutexLock lock(end->mutex);
    return end->changed.wait_for(end->mutex, patience,
                                 [end]() HL_REQUIRES(end->mutex) { return end->over; });
  }

 private:
  struct End {
    Mutex mutex;
    ConditionVariable changed;
    bool over HL_GUARDED_BY(mutex) = false;
  };
  std::shared_ptr<End> end_ = std::make_shared<End>();
};

}  // namespace hyperloop::agent
