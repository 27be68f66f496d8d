// Whether what several clients did to one register is linearizable, judged by zones: Gibbons and
// Korach, Testing Shared Memories, SIAM Journal on Computing 26(4), 1997, section 4.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace hyperloop::chaos {

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// A read or write of one register. No two beginnings and ends of a history are at the same time,
// but for kNever.
struct RegisterOperation {
  bool write = false;
  uint64_t value = 0;  // no two writes have the same one; the register begins with 0
  uint64_t begin = 1;
  uint64_t end = kNever;  // kNever, of writes only: it never returned, or failed, so that it may
                          // take place at any time after its beginning, or not at all
};

// Empty if the operations can have taken place one by one, each between its beginning and its end,
// with each read giving the value written last. Otherwise says why not.
std::string WhyNotLinearizable(const std::vector<RegisterOperation>& history);

}  // namespace hyperloop::chaos
