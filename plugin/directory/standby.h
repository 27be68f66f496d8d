// A standby: a directory that is kept ready to become the group's, while another one is.
#pragma once

#include <rocksdb/file_system.h>

#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"

namespace hyperloop::plugin {

struct StandbyRequest {
  std::string directory;
  StoreOptions store;         // as the group's next primary here would open it
  std::string replica_files;  // as Bringer's
};

// Makes the pool, and brings what the directory lacks, again and again (bringer.h), until the
// process ends. It takes nothing, and needs no permission but to read. It holds the directory's
// LOCK while the group holds a database. Says that it is ready (SayReady) when all files are here
// for the first time; on stderr when that is no longer so, and when it is again. Returns only with
// an error that no waiting mends. kInvalidArgument: the directory or the pool is not one that the
// group can have, or the directory is another user's. kBusy: another process has the directory.
Status KeepReady(rocksdb::FileSystem& fs, const StandbyRequest& request);

}  // namespace hyperloop::plugin
