// Vouching: finds out whether what a replica holds is all that was acknowledged.
//
// A replica that the group goes on without is not told. But nothing is acknowledged under another
// configuration before a majority of the former one's replicas has promised its epoch
// (membership/configuration.h). So if at some moment a majority had not promised a newer epoch than
// the one that a member has installed, then its log held everything that was acknowledged by then.
//
// Each replica is asked by a thread of its own, because one that is out of reach may take seconds
// to say nothing. Thread safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop {

class Vouching {
 public:
  using Clock = std::chrono::steady_clock;
  struct Witness {
    std::string address;  // of its control endpoint
    // What its node page says now, by a way that the function keeps. Called by one thread.
    std::function<Result<NodeMark>()> look;
  };

  explicit Vouching(std::vector<Witness> witnesses);
  // Waits for looks that are under way.
  ~Vouching();
  Vouching(const Vouching&) = delete;
  Vouching& operator=(const Vouching&) = delete;

  // Whether a majority of `members`, the addresses of a configuration's replicas, was seen to have
  // promised no other epoch than that configuration's, by looks that began at `since` or later.
  bool Confirms(std::span<const std::string> members, uint64_t epoch,
                Clock::time_point since) const;

 private:
  struct Seen {
    uint64_t sealed = 0;
    Clock::time_point at{};  // when the look began; every later promise is a newer epoch
  };
  void Ask(size_t place);

  const std::vector<Witness> witnesses_;
  mutable Mutex mutex_;
  ConditionVariable wake_;
  std::vector<Seen> seen_ HL_GUARDED_BY(mutex_);
  bool ended_ HL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hyperloop
