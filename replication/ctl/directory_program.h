// Commands of hyperloopctl that become hyperloop-directory, which is linked with RocksDB.
#pragma once

#include <string>

#include "ctl/nodes.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/directory_call.h"

namespace hyperloop::ctl {

// Does not return when it works. `where` may name no group for DirectoryCall::Doctor alone.
Status BecomeDirectoryProgram(const DirectoryCall::What& what, const std::string& directory,
                              const Where& where);

}  // namespace hyperloop::ctl
