// hyperloopctl doctor --db: what has happened to a database directory, and what to do.
#pragma once

#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::plugin {

struct Finding {
  enum class Kind { kGood, kNote, kBad };
  Kind kind = Kind::kGood;
  std::string text;
};

// Compares the directory with its group; only with itself, if `group` is null. Only reads, takes
// the group from nobody, and needs no lock: findings about a directory that is open may be of
// different moments.
std::vector<Finding> Diagnose(const std::string& directory, const StoreOptions* group);

}  // namespace hyperloop::plugin
