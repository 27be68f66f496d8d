// A disk whose flushes end when an input says so, and as it says.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "softrnic/engine/flusher.h"

namespace hyperloop::fuzz {

class HeldDisk final : public softrnic::Flusher {
 public:
  bool Flush(uint64_t, softrnic::FileRange range,
             std::shared_ptr<softrnic::FlushJob> job) override {
    if (jobs_.size() == kMost) return false;
    jobs_.emplace_back(std::move(range), std::move(job));
    return true;
  }
  void Gone(uint64_t) override {}
  // Ends the flush that has waited longest, if there is one.
  void FinishOne(bool ok) {
    if (jobs_.empty()) return;
    softrnic::FlushJob& job = *jobs_.front().second;
    if (!ok) job.failed = true;
    job.left.fetch_sub(1);
    jobs_.pop_front();
  }
  void FinishAll() {
    while (!jobs_.empty()) FinishOne(true);
  }

 private:
  static constexpr size_t kMost = 16;
  std::deque<std::pair<softrnic::FileRange, std::shared_ptr<softrnic::FlushJob>>> jobs_;
};

}  // namespace hyperloop::fuzz
