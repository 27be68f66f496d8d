// What agents decided, and why: one line of JSON for each event, as an agent's file and its page
// /history have them. Whatever somebody else wrote there is read without harm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::ctl {

struct AgentEvent {
  std::string time;     // "2026-11-30T20:45:00.123Z"
  std::string run;      // of the agent's process; another one each time
  uint64_t number = 0;  // within that
  std::string node;
  uint64_t epoch = 0;
  std::string state;  // of the agent
  std::string event;  // a word: "state", "service-started"
  std::string why;    // for people
  friend bool operator==(const AgentEvent&, const AgentEvent&) = default;
};

inline constexpr size_t kMostEventText = 1024;  // bytes of `why`

// The time of the wall clock, as AgentEvent::time.
std::string EventTimeNow();
// With the newline. Texts are made printable, and cut.
std::string FormatAgentEvent(const AgentEvent& event);
// The events of a text of lines. A last line without its newline may have been cut, and is no
// error then. `*bad`: how many other lines are none.
std::vector<AgentEvent> ParseAgentEvents(std::string_view text, size_t* bad);
// All of them, each once, in the order of their times.
std::vector<AgentEvent> MergeAgentEvents(std::vector<AgentEvent> events);

// The file into which an agent moves what is older.
inline std::string OlderHistory(const std::string& path) { return path + ".1"; }
// The last `most` bytes of such a file, from the beginning of a line on. It is waited for nothing:
// what is no regular file is refused. kNotFound.
Result<std::string> ReadHistoryFile(const std::string& path, size_t most);

}  // namespace hyperloop::ctl
