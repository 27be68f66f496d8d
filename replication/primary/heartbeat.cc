#include "primary/heartbeat.h"

#include <span>
#include <utility>

namespace hyperloop {

// The word starts with the time, so that a restarted owner never repeats the words of its former
// process.
Heartbeat::Heartbeat(std::vector<Target> targets, int avoid_cpu)
    : targets_(std::move(targets)),
      word_(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())),
      thread_(
          "hl-heartbeat",
          [this] {
            Beat();
            return kInterval;
          },
          avoid_cpu) {}

void Heartbeat::SetTargets(std::vector<Target> targets) {
  const std::lock_guard lock(targets_mutex_);
  targets_ = std::move(targets);
  lost_.store(false, std::memory_order_relaxed);
}

// A member that cannot be reached misses beats. The other members do not.
void Heartbeat::Beat() {
  const std::lock_guard lock(targets_mutex_);
  ++word_;
  for (const Target& each : targets_) {
    const Status started =
        each.access->StartWrite(each.word, 0, std::as_bytes(std::span(&word_, 1)));
    if (!started.ok() && started.code() != Code::kBusy)
      lost_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace hyperloop
