// In which order the members of a group form a chain, if some of them do not reach each other
// although the primary reaches all: pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hyperloop {

// Ways between replicas that were found cut. Not thread safe.
class CutWays {
 public:
  using Clock = std::chrono::steady_clock;
  // A way may have been mended since, so one that was noted long ago does not count: a minute ago,
  // or longer than it takes to find every way between `members` cut, one in each `ack_timeout`.
  CutWays(size_t members, std::chrono::nanoseconds ack_timeout);

  // By address. Both directions count as cut.
  void Note(const std::string& one, const std::string& other, Clock::time_point now);
  bool Has(const std::string& one, const std::string& other, Clock::time_point now) const;

 private:
  using Way = std::pair<std::string, std::string>;
  static Way WayBetween(const std::string& one, const std::string& other);
  const std::chrono::nanoseconds remembered_;
  std::map<Way, Clock::time_point> noted_;
};

// The first order of `members`, which are addresses, in which no way between neighbours is cut. It
// is their own one, if that will do. Nothing: there is none.
std::optional<std::vector<size_t>> ChainOrder(std::span<const std::string> members,
                                              const CutWays& cut, CutWays::Clock::time_point now);

// `has`: for each member in the order of the chain whether it has what was sent down the chain.
// Returns the first one that lacks it and whose predecessor has it: the way between the two carries
// nothing. Nothing: there is no such one.
std::optional<size_t> FirstBehindCut(const std::vector<bool>& has);

}  // namespace hyperloop
