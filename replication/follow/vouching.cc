#include "follow/vouching.h"

#include <algorithm>
#include <utility>

namespace hyperloop {
namespace {

constexpr std::chrono::milliseconds kAsk{50}, kAskAgain{1000};

}  // namespace

Vouching::Vouching(std::vector<Witness> witnesses)
    : witnesses_(std::move(witnesses)), seen_(witnesses_.size()) {
  for (size_t place = 0; place < witnesses_.size(); ++place)
    threads_.emplace_back([this, place] { Ask(place); });
}

Vouching::~Vouching() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  for (std::thread& each : threads_) each.join();
}

bool Vouching::Confirms(std::span<const std::string> members, uint64_t epoch,
                        Clock::time_point since) const {
  const MutexLock lock(mutex_);
  size_t confirmed = 0;
  for (size_t place = 0; place < witnesses_.size(); ++place) {
    const bool member = std::ranges::find(members, witnesses_[place].address) != members.end();
    if (member && seen_[place].sealed == epoch && seen_[place].at >= since) ++confirmed;
  }
  return 2 * confirmed > members.size();
}

void Vouching::Ask(size_t place) {
  MutexLock lock(mutex_);
  while (!ended_) {
    lock.unlock();
    const Clock::time_point began = Clock::now();
    const Result<NodeMark> mark = witnesses_[place].look();
    lock.lock();
    if (mark.ok()) seen_[place] = {mark->sealed, began};
    wake_.wait_for(mutex_, mark.ok() ? kAsk : kAskAgain,
                   [this]() HL_REQUIRES(mutex_) { return ended_; });
  }
}

}  // namespace hyperloop
