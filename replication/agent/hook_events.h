// HookEvents: what of an agent's pictures hooks are told. It is pure.
//
// At the start, and as soon as something is known, they are told how things are, whatever an
// earlier agent has told them: it may have ended before it could.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/hook_queue.h"
#include "agent/pages.h"

namespace hyperloop::agent {

class HookEvents {
 public:
  // `run`: of the agent's process; another one each time.
  explicit HookEvents(std::string run) : run_(std::move(run)) {}
  // What has changed since the last call.
  std::vector<HookEvent> Note(const Picture& picture, Picture::Time now);

 private:
  void NoteOne(HookTopic topic, std::optional<bool>* before, bool is, const char* begin,
               const char* end, const Picture& picture, std::vector<HookEvent>* events);

  const std::string run_;
  uint64_t number_ = 0;
  std::optional<bool> primary_, paused_, drained_;  // as told; nothing: not told yet
};

}  // namespace hyperloop::agent
