// Survivors: what is left of a group of which too few replicas are left to agree on anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {

struct Survivors {
  std::vector<std::string> left;  // control endpoints of the replicas that answer
  std::vector<std::string> lost;  // those of the recorded ones that do not
  // Of the newest configuration that is known to those that are left. Each of its replicas holds
  // what was acknowledged under it.
  uint64_t epoch = 0;
  std::string owner;     // who took the group last, as they say: process, host and directory
  std::string alive_at;  // when that one last showed them that it lives
};

// Looks, and changes nothing. With StoreOptions::given_up = `lost`, Store::Take goes on with those
// that are left. kInvalidArgument: enough answer to go on without that, or others than the recorded
// ones are listed. Else as Store::Take.
Result<Survivors> FindSurvivors(const StoreOptions& options);

}  // namespace hyperloop
