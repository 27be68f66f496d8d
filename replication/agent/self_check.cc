#include "agent/self_check.h"

#include <utility>

#include "hyperloop/core/mutex.h"

namespace hyperloop::agent {

struct SelfCheck::Work {
  Work(ctl::TakeoverPlace where, std::string files, std::string name,
       std::chrono::milliseconds pause)
      : folder(std::move(files)),
        group(std::move(name)),
        interval(pause),
        place(std::move(where)) {}

  void Run() {
    MutexLock lock(mutex);
    while (!ending) {
      const ctl::TakeoverPlace now = place;
      lock.unlock();
      auto checked = std::make_shared<SelfChecked>();
      checked->lacks = ctl::TakeoverLacks(now);
      if (!group.empty()) {
        auto digests = ctl::DigestFiles(folder, group);
        checked->files_error = digests.status().message();
        if (digests.ok()) checked->files = *std::move(digests);
      }
      checked->when = BootClock::now();
      lock.lock();
      found = std::move(checked);
      changed.wait_for(mutex, interval, [this]() HL_REQUIRES(mutex) { return ending; });
    }
  }

  const std::string folder, group;
  const std::chrono::milliseconds interval;
  Mutex mutex;
  ConditionVariable changed;
  ctl::TakeoverPlace place HL_GUARDED_BY(mutex);
  std::shared_ptr<const SelfChecked> found HL_GUARDED_BY(mutex);
  bool ending HL_GUARDED_BY(mutex) = false;
};

SelfCheck::SelfCheck(ctl::TakeoverPlace place, std::string folder, std::string group,
                     std::chrono::milliseconds interval)
    : work_(
          std::make_shared<Work>(std::move(place), std::move(folder), std::move(group), interval)),
      thread_([work = work_] { work->Run(); }) {}

SelfCheck::~SelfCheck() {
  {
    const MutexLock lock(work_->mutex);
    work_->ending = true;
  }
  work_->changed.notify_all();
  thread_.Await();
}

void SelfCheck::SetRegionSize(uint64_t size) {
  const MutexLock lock(work_->mutex);
  work_->place.region_size = size;
}

std::shared_ptr<const SelfChecked> SelfCheck::found() const {
  const MutexLock lock(work_->mutex);
  return work_->found;
}

}  // namespace hyperloop::agent
