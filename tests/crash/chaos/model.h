// The states that a database may be in, as far as a checker can know: the last acknowledged value
// of each key, and every later one whose write never got an answer or failed.
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

// Reads what `chaos_writer dump` wrote. `torn`: the first key whose value was never written by
// anybody.
Content ReadDump(const std::string& path, std::string* torn);

class Model {
 public:
  // With ack=sync: a write without sync=true is acknowledged by the next one of its thread that has
  // it.
  void set_only_sync_acknowledges() { only_sync_acknowledges_ = true; }
  // Takes in what the writer did since the last call.
  void Follow(const Progress& progress);
  // What is wrong with `content`; empty when it is possible.
  std::string Check(const Content& content) const;
  // `content` was seen by a reader of the group: from now on it is what must be there.
  void Settle(const Content& content);

  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t undecided() const { return undecided_; }  // all that were ever open

 private:
  void Apply(uint32_t thread, uint64_t number, bool acknowledged);

  bool only_sync_acknowledges_ = false;
  uint64_t next_[kThreads] = {1, 1};
  std::vector<std::pair<uint64_t, bool>> unsynced_[kThreads];  // number, returned OK
  uint64_t acknowledged_ = 0, undecided_ = 0;
  // What each key may have; 0: it is not there. A key without an entry is not there.
  std::map<std::pair<uint32_t, std::string>, std::vector<uint64_t>> possible_;
};

}  // namespace hyperloop::chaos
