// Pages: what an agent shows of itself by HTTP, and the file that says its role.
//
// Whether this node is the primary is decided at the moment of the request, by the clock, and not
// by what the agent said last: an agent that was stopped shows no old truth when it goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/self_check.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/metrics/page.h"
#include "hyperloop/metrics/server.h"

namespace hyperloop::agent {

// What the agent knows of the group and of itself.
struct Picture {
  using Time = BootClock::time_point;
  struct Replica {
    std::string address;
    std::string error;  // why it does not answer; empty: it does, and the rest is what it says
    uint64_t sealed_epoch = 0, installed_epoch = 0;
    bool released = false;
  };

  struct Hook {
    std::string program;
    uint64_t calls = 0, failures = 0;
    std::optional<Time> waiting_since;  // since when it is to be told something; nothing: it was
  };

  std::string node;
  std::string group;           // empty: not known
  uint64_t branch = 0;         // epoch with which the branch of its history began
  std::string state;           // of the machine
  std::string why;             // for people: what it waits for, or what is wrong; may be empty
  uint64_t epoch = 0;          // newest one that a replica has promised
  std::string owner;           // for people: who has it
  std::string owner_node;      // the node on which an agent started that one; empty: none did
  bool released = false;       // that one has closed in order
  std::string directive;       // for people: what operators tell all agents; empty: nothing yet
  bool paused = false;         // they do: nobody starts a service, or ends a healthy one
  bool drained = false;        // none is to run on this node
  bool primary = false;        // this node's service has the group, and is ready
  Time lease_end{};            // of that
  bool standby = false;        // it is not, and its agent would take the group if it became free
  bool standby_ready = false;  // what the group holds is beside the directory here, or was
  std::optional<Time> seen;    // when a majority of the replicas answered last
  std::vector<Replica> replicas;
  std::vector<Hook> hooks;
  std::shared_ptr<const SelfChecked> checked;  // null: this host was not looked at yet
  uint64_t service_pid = 0;                    // 0: it does not run
  uint64_t looks = 0, looks_without_majority = 0, takings = 0, start_failures = 0, service_ends = 0;
};

class Pages {
 public:
  // `stale`: an agent that has not seen a majority for so long is not in health.
  explicit Pages(std::chrono::nanoseconds stale) : stale_(stale) {}

  void Set(Picture picture);
  // What is at `path`, to be said to whoever asks. Any thread may call it.
  metrics::Answer Get(std::string_view path) const;

 private:
  const std::chrono::nanoseconds stale_;
  const double started_ = metrics::NowSeconds();
  mutable Mutex mutex_;
  Picture picture_ HL_GUARDED_BY(mutex_);
};

// Whether this node's service is the primary, at this time.
bool IsPrimary(const Picture& picture, Picture::Time now);
// What keeps this node from taking the group, besides what operators tell all nodes. Each a
// sentence, with what mends it. `stale`: as Pages'.
std::vector<std::string> LacksAt(const Picture& picture, Picture::Time now,
                                 std::chrono::nanoseconds stale);

// The contents of the role file, at this time.
std::string RoleText(const Picture& picture, Picture::Time now);
// Replaces the role file in one step, so that whoever reads it finds one of the two whole.
Status WriteRoleFile(const std::string& path, std::string_view text);

}  // namespace hyperloop::agent
