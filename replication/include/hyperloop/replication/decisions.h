// Decisions: up to which record of the log it is decided what the program was told of its changes.
//
// A record may be durable on every replica although the call that appended it fails: the group
// stood still for longer than the call waits, or the local disk failed afterwards. Before the
// program writes anything else it cuts what such a call left, which is called a tail. Nobody may be
// shown these bytes meanwhile. So the program counts its changes here, and the primary states
// records as acknowledged only as far as they are decided. Once the store is closed nobody cuts
// anything any more, and all is decided: the next primary keeps what is there.
//
// Thread safe. Memory order: what a change noted before End is seen by whoever finds it ended, and
// what one noted before Begin by each that begins later. The lane's mutex orders its Begin before
// every later record's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>

#include "hyperloop/core/mutex.h"

namespace hyperloop {

class Decisions {
 public:
  static constexpr uint64_t kAll = UINT64_MAX;

  // --- for the program

  // A change is in flight from Begin, before its call, to End. Returns what Stands asks for.
  uint64_t Begin() {
    in_flight_.fetch_add(1, std::memory_order_acq_rel);
    return tails_left_.load(std::memory_order_acquire);
  }
  void End() { in_flight_.fetch_sub(1, std::memory_order_release); }
  bool any_in_flight() const { return in_flight_.load(std::memory_order_acquire) != 0; }

  // The change that `begun` is of, and that has not ended, is not taken back, so its last record
  // and all before it are decided. Without effect while other changes are in flight, or if one has
  // failed since: then a later change says so.
  void Stands(uint64_t begun, uint64_t record) {
    if (in_flight_.load(std::memory_order_acquire) != 1 || tails()) return;
    if (tails_left_.load(std::memory_order_relaxed) != begun) return;
    Decide(any_open_.load(std::memory_order_acquire) ? std::min(record, OpenLimit()) : record);
  }

  // A failed change has left a tail. To be called before its End.
  void TailLeft() {
    tails_.store(true, std::memory_order_relaxed);
    // After the store, so that whoever sees the count sees the tail.
    tails_left_.fetch_add(1, std::memory_order_release);
  }
  // No tail is left.
  void TailsCut() { tails_.store(false, std::memory_order_release); }
  bool tails() const { return tails_.load(std::memory_order_acquire); }

  // What was appended to `file` up to `record` may still be taken back down to record `kept`,
  // although the change has ended. For programs in which a sync decides.
  void NoteOpen(const void* file, uint64_t kept, uint64_t record) {
    const MutexLock lock(mutex_);
    open_[file] = {kept, record};
    any_open_.store(true, std::memory_order_release);
  }
  // What was appended to `file` up to `record` is not taken back any more.
  void NoteClosed(const void* file, uint64_t record) {
    const MutexLock lock(mutex_);
    const auto found = open_.find(file);
    if (found == open_.end() || found->second.record > record) return;
    open_.erase(found);
    any_open_.store(!open_.empty(), std::memory_order_release);
  }

  // --- for the primary

  // Everything up to this record is decided.
  uint64_t decided() const { return decided_.load(std::memory_order_acquire); }
  const std::atomic<uint64_t>& decided_word() const { return decided_; }
  // From now on the program decides about all records behind `record`.
  void Start(uint64_t record) { decided_.store(record, std::memory_order_release); }
  void Finish() { Start(kAll); }
  // If two calls return the same value, every record that was in the log between them is decided.
  // Nothing: a change is not decided yet.
  std::optional<uint64_t> Settled() const {
    const uint64_t left = tails_left_.load(std::memory_order_acquire);
    if (any_in_flight() || tails() || any_open_.load(std::memory_order_acquire))
      return std::nullopt;
    if (tails_left_.load(std::memory_order_relaxed) != left) return std::nullopt;
    return left;
  }
  void Decide(uint64_t record) {
    uint64_t before = decided_.load(std::memory_order_relaxed);
    while (before < record &&
           !decided_.compare_exchange_weak(before, record, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
  }

 private:
  struct Open {
    uint64_t kept = 0, record = 0;
  };

  uint64_t OpenLimit() {
    const MutexLock lock(mutex_);
    uint64_t limit = kAll;
    for (const auto& each : open_) limit = std::min(limit, each.second.kept);
    return limit;
  }

  std::atomic<uint64_t> decided_{kAll};
  std::atomic<int> in_flight_{0};
  std::atomic<bool> tails_{false}, any_open_{false};
  std::atomic<uint64_t> tails_left_{0};  // how often one was
  Mutex mutex_;
  std::map<const void*, Open> open_ HL_GUARDED_BY(mutex_);  // by file
};

}  // namespace hyperloop
