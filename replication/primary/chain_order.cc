#include "primary/chain_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace hyperloop {

CutWays::CutWays(size_t members, std::chrono::nanoseconds ack_timeout)
    : remembered_(std::max<std::chrono::nanoseconds>(
          std::chrono::minutes(1),
          (static_cast<int64_t>(members * (members - 1) / 2) + 1) * ack_timeout)) {}

CutWays::Way CutWays::WayBetween(const std::string& one, const std::string& other) {
  return std::minmax(one, other);
}

void CutWays::Note(const std::string& one, const std::string& other, Clock::time_point now) {
  noted_[WayBetween(one, other)] = now;
}

bool CutWays::Has(const std::string& one, const std::string& other, Clock::time_point now) const {
  const auto found = noted_.find(WayBetween(one, other));
  return found != noted_.end() && now - found->second < remembered_;
}

// A group has at most 8 replicas, so at most 40,320 orders are looked at.
std::optional<std::vector<size_t>> ChainOrder(std::span<const std::string> members,
                                              const CutWays& cut, CutWays::Clock::time_point now) {
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  do {
    const auto broken = std::ranges::adjacent_find(order, [&](size_t before, size_t behind) {
      return cut.Has(members[before], members[behind], now);
    });
    if (broken == order.end()) return order;
  } while (std::ranges::next_permutation(order).found);
  return {};
}

std::optional<size_t> FirstBehindCut(const std::vector<bool>& has) {
  const auto lacking = std::ranges::find(has, false);
  if (lacking == has.begin() || lacking == has.end()) return {};
  return static_cast<size_t>(lacking - has.begin());
}

}  // namespace hyperloop
