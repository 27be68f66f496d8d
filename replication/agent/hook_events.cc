#include "agent/hook_events.h"

#include "hyperloop/core/text.h"

namespace hyperloop::agent {

std::vector<HookEvent> HookEvents::Note(const Picture& picture, Picture::Time now) {
  std::vector<HookEvent> events;
  NoteOne(HookTopic::kRole, &primary_, IsPrimary(picture, now), "became-primary", "lost-primary",
          picture, &events);
  // Nothing was told to an agent that has seen nobody.
  if (!picture.seen.has_value()) return events;
  NoteOne(HookTopic::kPause, &paused_, picture.paused, "paused", "resumed", picture, &events);
  NoteOne(HookTopic::kDrain, &drained_, picture.drained, "drained", "undrained", picture, &events);
  return events;
}

void HookEvents::NoteOne(HookTopic topic, std::optional<bool>* before, bool is, const char* begin,
                         const char* end, const Picture& picture, std::vector<HookEvent>* events) {
  if (*before == is) return;
  *before = is;
  const std::string name = is ? begin : end;
  const std::string key =
      Text(picture.group.empty() ? "-" : picture.group, "/", picture.branch, ".", picture.epoch,
           "/", name, "/", picture.node, "/", run_, ".", ++number_);
  events->push_back({topic, name, key, picture.epoch});
}

}  // namespace hyperloop::agent
