// Meter: counts the instructions, or the time, of chosen pieces of a program.
//
// Under `valgrind --tool=callgrind --collect-atstart=no` the instructions between Start and Stop
// are collected, and Report ends a case: callgrind writes the collected counts to a file of their
// own, triggered by "NAME OPERATIONS". Otherwise Report prints the mean time of an operation, less
// the time for reading the clock.
#pragma once

#include <valgrind/callgrind.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace hyperloop::instructions {

class Meter {
 public:
  Meter() {
    constexpr int kTries = 1000;
    for (int i = 0; i < kTries; ++i) Start(), Stop();
    per_stop_ = elapsed_ / kTries;
    elapsed_ = {}, stops_ = 0;
    CALLGRIND_ZERO_STATS;
  }

  void Start() {
    begin_ = Clock::now();
    CALLGRIND_TOGGLE_COLLECT;
  }
  void Stop() {
    CALLGRIND_TOGGLE_COLLECT;
    elapsed_ += Clock::now() - begin_;
    ++stops_;
  }
  void Report(const std::string& name, uint64_t operations) {
    if (RUNNING_ON_VALGRIND != 0) {
      const std::string trigger = name + " " + std::to_string(operations);
      CALLGRIND_DUMP_STATS_AT(trigger.c_str());
    } else {
      const auto spent = elapsed_ - static_cast<int64_t>(stops_) * per_stop_;
      const double ns = std::chrono::duration<double, std::nano>(spent).count();
      std::printf("%-28s %9.1f ns\n", name.c_str(), ns / static_cast<double>(operations));
    }
    elapsed_ = {}, stops_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_;
  Clock::duration elapsed_{}, per_stop_{};
  uint64_t stops_ = 0;
};

}  // namespace hyperloop::instructions
