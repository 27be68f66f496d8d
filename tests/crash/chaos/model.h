// The states in which a database may be, as far as a checker can know: each key has its last
// acknowledged value, or a later one whose write failed or never got an answer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "crash/chaos/protocol.h"

namespace hyperloop::chaos {

// (family, key) → number of the operation whose value it has; keys that are not there are left out.
using Content = std::map<std::pair<uint32_t, std::string>, uint64_t>;

// Reads the output of `chaos_writer dump`. `torn`: the first key whose value nobody ever wrote.
Content ReadDump(const std::string& path, std::string* torn);

class Model {
 public:
  // With ack=sync: a write without sync=true is acknowledged by the next one of its thread that has
  // it.
  void set_only_sync_acknowledges() { only_sync_acknowledges_ = true; }
  // Adds the writer's operations since the last call.
  void Follow(const Progress& progress);
  // Says what is wrong with `content`; empty if it is a possible state. Not of shared keys, which
  // SharedHistory judges.
  std::string Check(const Content& content) const;
  // A reader of the group has seen `content`, so that from now on it is the only possible state.
  void Settle(const Content& content);

  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t undecided() const { return undecided_; }  // all that were ever open

 private:
  void Apply(uint32_t thread, uint64_t number, bool acknowledged);

  bool only_sync_acknowledges_ = false;
  uint64_t next_[kThreads] = {1, 1};
  std::vector<std::pair<uint64_t, bool>> unsynced_[kThreads];  // number, returned OK
  uint64_t acknowledged_ = 0, undecided_ = 0;
  // The values that each key may have; 0: absent. A key without an entry is absent.
  std::map<std::pair<uint32_t, std::string>, std::vector<uint64_t>> possible_;
};

}  // namespace hyperloop::chaos
