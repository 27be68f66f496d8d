#include "crash/chaos/linearizability.h"

#include <algorithm>
#include <map>

namespace hyperloop::chaos {
namespace {

// The operations of one value: from `first_end` to `last_begin` the register must have had it, if
// that is forward in time; otherwise it had it at one moment at least between the two.
struct Zone {
  uint64_t value = 0;
  uint64_t first_end = kNever, last_begin = 0;
  uint64_t written = kNever;  // when its write began
  uint64_t first_read_end = kNever;
  bool forward() const { return first_end < last_begin; }
  uint64_t low() const { return std::min(first_end, last_begin); }
  uint64_t high() const { return std::max(first_end, last_begin); }
};

std::string Named(const Zone& zone) {
  return "value " + std::to_string(zone.value) + " (" + std::to_string(zone.low()) + " to " +
         std::to_string(zone.high()) + ")";
}

std::map<uint64_t, Zone> ZonesOf(const std::vector<RegisterOperation>& history) {
  std::map<uint64_t, Zone> zones;
  zones[0] = {.value = 0, .first_end = 0, .written = 0};
  for (const RegisterOperation& operation : history) {
    Zone& zone = zones[operation.value];
    zone.value = operation.value;
    zone.first_end = std::min(zone.first_end, operation.end);
    zone.last_begin = std::max(zone.last_begin, operation.begin);
    if (operation.write) {
      zone.written = operation.begin;
    } else {
      zone.first_read_end = std::min(zone.first_read_end, operation.end);
    }
  }
  // Writes that never returned, and that nobody read, need not have taken place.
  std::erase_if(zones, [](const auto& each) { return each.second.first_end == kNever; });
  return zones;
}

}  // namespace

std::string WhyNotLinearizable(const std::vector<RegisterOperation>& history) {
  std::vector<Zone> forward, backward;
  for (const auto& [value, zone] : ZonesOf(history)) {
    if (zone.written == kNever) return "value " + std::to_string(value) + " was never written";
    if (zone.first_read_end < zone.written)
      return "value " + std::to_string(value) + " was read before it was written";
    (zone.forward() ? forward : backward).push_back(zone);
  }
  std::sort(forward.begin(), forward.end(),
            [](const Zone& a, const Zone& b) { return a.low() < b.low(); });
  for (size_t i = 1; i < forward.size(); ++i)
    if (forward[i].low() < forward[i - 1].high())
      return Named(forward[i - 1]) + " and " + Named(forward[i]) + " were there at the same time";
  for (const Zone& zone : backward) {
    const auto next =
        std::upper_bound(forward.begin(), forward.end(), zone.low(),
                         [](uint64_t low, const Zone& each) { return low < each.low(); });
    if (next != forward.begin() && zone.high() < std::prev(next)->high())
      return Named(zone) + " was there while " + Named(*std::prev(next)) + " was";
  }
  return "";
}

}  // namespace hyperloop::chaos
