// History: what an agent decided, and why, in a file that survives it, and the newest of it for
// whoever asks by HTTP. Lines of JSON (ctl/agent_history.h).
//
// The file is synced after each write, and moved aside when it has kMostBytes, so that there are
// two at most. A line that a crash cut stays alone: the next one begins a line of its own. Nobody
// waits for the disk: what it does not take is tried again, and the newest kMostWaiting lines wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agent/side_thread.h"
#include "hyperloop/core/log.h"

namespace hyperloop::agent {

class History {
 public:
  static constexpr size_t kMostBytes = 1 << 20;
  static constexpr size_t kMostShown = 256, kMostWaiting = 1024;  // lines

  // `path`: empty: there is no file. What is there already is shown, too.
  History(std::string path, std::string node, std::shared_ptr<Log> log,
          size_t most_bytes = kMostBytes);
  // Waits a second at most for what is to be written.
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  void Add(std::string_view event, std::string_view state, uint64_t epoch, std::string_view why);
  // The newest lines. Any thread may call it.
  std::string Page() const;

 private:
  class Writer;
  const std::shared_ptr<Writer> writer_;
  const std::string node_, run_;
  uint64_t number_ = 0;
  SideThread thread_;
};

}  // namespace hyperloop::agent
