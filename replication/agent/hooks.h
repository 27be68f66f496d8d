// Hooks: programs of the operators that an agent tells what becomes of its node, such as proxies
// and name servers need to know.
//
// Each is called as PROGRAM EVENT KEY, with the rest in its environment (HYPERLOOP_HOOK_…), one
// call at a time, in a process group of its own, which is killed after `timeout` and with the
// agent. HookQueue says what it is told next. Nobody waits for it: each hook has a thread, and what
// it does, or does not, shows in the log and in metrics, and decides nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/hook_queue.h"
#include "agent/side_thread.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"

namespace hyperloop::agent {

// Whether it may be called: an executable that only this user and root can change, by its absolute
// path. The error says what is wrong. Links in the last part of the path are not followed.
Status CheckHook(const std::string& program);

class Hook {
 public:
  struct Options {
    std::string program;
    // Besides what follows from the event, in every call.
    std::vector<std::pair<std::string, std::string>> environment;
    std::chrono::milliseconds timeout{10000};
    HookQueue::Pauses pauses;
  };
  struct Shown {
    uint64_t calls = 0, failures = 0;
    std::optional<BootClock::time_point> waiting_since;  // as HookQueue::waiting_since
  };
  static constexpr size_t kMostOutput = 1024;  // bytes of a call's that come into the log

  Hook(Options options, std::shared_ptr<Log> log);
  // Kills a call that is under way. Waits a second at most.
  ~Hook();
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  const std::string& program() const;
  void Tell(HookEvent event);
  Shown Show() const;
  // Waits until all was told, or that time is over.
  bool AwaitTold(std::chrono::milliseconds patience) const;

 private:
  class Work;
  const std::shared_ptr<Work> work_;
  SideThread thread_;
};

}  // namespace hyperloop::agent
