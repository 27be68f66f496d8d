// What the writer's threads did to the keys that they share, over all lives of the service, and
// what was there each time the database was opened in order: one history of each key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "crash/chaos/linearizability.h"
#include "crash/chaos/model.h"
#include "crash/chaos/protocol.h"

namespace hyperloop::chaos {

class SharedHistory {
 public:
  // Somebody who opened the database has read `content`, while nobody else had it open.
  void Add(const Content& content, Progress& progress);
  // Empty if all that happened until now is linearizable, key by key.
  std::string WhyNotLinearizable(const Progress& progress);
  // How many operations the last call has judged.
  uint64_t judged() const { return judged_; }

 private:
  std::vector<RegisterOperation> found_[kSharedKeys];  // by Add
  uint64_t judged_ = 0;
};

}  // namespace hyperloop::chaos
