#include "agent/hook_queue.h"

#include <algorithm>
#include <utility>

namespace hyperloop::agent {

void HookQueue::Push(HookEvent event, Time now) {
  std::optional<Time> since = now;
  std::erase_if(entries_, [&](const Entry& each) {
    const bool same = each.event.topic == event.topic;
    if (same && each.since.has_value()) since = each.since;
    return same;
  });
  entries_.push_back({std::move(event), since, now, pauses_.first});
}

std::optional<HookEvent> HookQueue::Next(Time now) const {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& each) { return each.due.has_value() && *each.due <= now; });
  if (found == entries_.end()) return std::nullopt;
  return found->event;
}

std::optional<HookQueue::Time> HookQueue::due() const {
  std::optional<Time> due;
  for (const Entry& each : entries_)
    if (each.due.has_value()) due = std::min(due.value_or(*each.due), *each.due);
  return due;
}

void HookQueue::OnTold(const std::string& key, bool succeeded, Time now) {
  for (Entry& each : entries_) {
    if (each.event.key != key) continue;
    if (succeeded) {
      each.since.reset();
      each.due.reset();
      each.pause = pauses_.first;
      if (pauses_.repeat.count() != 0) each.due = now + pauses_.repeat;
    } else {
      if (!each.since.has_value()) each.since = now;
      each.due = now + each.pause;
      each.pause = std::min(2 * each.pause, pauses_.most);
    }
  }
}

std::optional<HookQueue::Time> HookQueue::waiting_since() const {
  std::optional<Time> since;
  for (const Entry& each : entries_)
    if (each.since.has_value()) since = std::min(since.value_or(*each.since), *each.since);
  return since;
}

}  // namespace hyperloop::agent
