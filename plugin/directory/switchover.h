// The first part of a switchover, while the former primary serves: waits until that primary has
// closed its database, and brings meanwhile what the new directory lacks (bringer.h).
#pragma once

#include <rocksdb/file_system.h>

#include <chrono>
#include <optional>
#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::plugin {

struct SwitchoverRequest {
  std::string directory;  // exists; its LOCK is held
  StoreOptions store;
  std::string replica_files;  // as Bringer's
  std::chrono::seconds wait;  // how long the former primary may take to close its database
};

// The group as its former primary left it.
struct Released {
  using Clock = std::chrono::steady_clock;
  std::string former;  // that primary's process, host and directory
  // When the former primary was last seen to hold the group; nothing: it never was.
  std::optional<Clock::time_point> held;
  Clock::time_point released;  // when it was first seen to have released it
};

// Says on stdout when all files are here and only the former primary is waited for. Takes nothing.
// kBusy: the former primary has not released the group in time; the message names it, and says
// whether it lives. kInvalidArgument: the directory holds another database. Else as Prefetch.
Result<Released> AwaitRelease(rocksdb::FileSystem& fs, const SwitchoverRequest& request);

}  // namespace hyperloop::plugin
