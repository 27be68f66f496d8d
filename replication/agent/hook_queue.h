// HookQueue: what a hook is to be told, in which order, and when. It is pure.
//
// Events are of topics, and a newer one takes the place of the one before of its topic, whether
// that was told, is being told or failed: a hook that comes late is told how things are, and not
// how they were. Within that they are told in the order in which they happened. One that fails is
// told again, later and later, and holds up none of another topic. One that was told may be told
// again in intervals, for hooks whose effect runs out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/boot_clock.h"

namespace hyperloop::agent {

enum class HookTopic : uint8_t { kRole, kPause, kDrain };

struct HookEvent {
  HookTopic topic = HookTopic::kRole;
  std::string name;  // "became-primary"
  // Of this event alone: each try has the same one, and no other event has it.
  std::string key;
  uint64_t epoch = 0;  // of the group, when it happened
};

class HookQueue {
 public:
  using Time = BootClock::time_point;
  struct Pauses {
    std::chrono::milliseconds first{1000}, most{60000};  // after failures
    std::chrono::milliseconds repeat{0};                 // after success; 0: never
  };
  explicit HookQueue(const Pauses& pauses) : pauses_(pauses) {}

  void Push(HookEvent event, Time now);
  // What is to be told now; nothing: there is nothing yet.
  std::optional<HookEvent> Next(Time now) const;
  // When Next will have something; nothing: not before another Push.
  std::optional<Time> due() const;
  // It was told, or that failed. One that another one took the place of is over.
  void OnTold(const std::string& key, bool succeeded, Time now);
  // Since when something is to be told that was not yet; nothing: all was.
  std::optional<Time> waiting_since() const;

 private:
  struct Entry {
    HookEvent event;
    std::optional<Time> since;  // as waiting_since
    std::optional<Time> due;
    std::chrono::milliseconds pause{};  // after the next failure
  };
  const Pauses pauses_;
  std::vector<Entry> entries_;  // one a topic, in the order of the events
};

}  // namespace hyperloop::agent
