// Timeline: the time of a model, and what happens in it. Events of one moment happen in the order
// in which they were asked for, so that a run is the same each time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hyperloop::model {

using Nanoseconds = uint64_t;

inline Nanoseconds Rounded(double ns) { return static_cast<Nanoseconds>(std::llround(ns)); }

class Timeline {
 public:
  Nanoseconds now() const { return now_; }
  // A moment that is past means now.
  void At(Nanoseconds at, std::function<void()> event) {
    events_.push_back({std::max(at, now_), next_++, std::move(event)});
    std::ranges::push_heap(events_, Later);
  }
  // Lets the next event happen. False: there is none.
  bool Step() {
    if (events_.empty()) return false;
    std::ranges::pop_heap(events_, Later);
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.at;
    event.what();
    return true;
  }

 private:
  struct Event {
    Nanoseconds at;
    uint64_t number;
    std::function<void()> what;
  };
  static bool Later(const Event& a, const Event& b) {
    return std::pair(a.at, a.number) > std::pair(b.at, b.number);
  }

  std::vector<Event> events_;  // a heap; the next one is in front
  Nanoseconds now_ = 1'000'000'000;
  uint64_t next_ = 0;
};

}  // namespace hyperloop::model
