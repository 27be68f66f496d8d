// Takes a database that a plain directory holds into a group that holds none.
//
// The first step makes the file kAdoptionMark in the group, and the last one renames it to CURRENT.
// Only then does the group hold a database. An adoption that was cut short before that leaves
// the directory as it was, but for the file HYPERLOOP. The next one begins again with what the
// directory holds by then, and sends nothing that a replica has already.
#pragma once

#include <rocksdb/file_system.h>

#include <string>
#include <vector>

#include "bound/bound_directory.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Whether a group that holds these files holds a database.
bool HoldsCurrent(const std::vector<FileInfo>& group);
// Whether the directory holds a database and the group, whose files these are, does not.
Result<bool> IsToBeAdopted(rocksdb::FileSystem& fs, const std::string& directory,
                           const std::vector<FileInfo>& group);

// kInvalidArgument: the directory does not hold the whole database; the message names what is
// missing, elsewhere or not readable. kNoSpace: it is more than the group takes. The message names
// the way out. Only reads.
Status JudgeAdoption(rocksdb::FileSystem& fs, const std::string& directory, const GroupRoom& room);

// Returns when every replica has the whole database. kUnavailable: a replica took no bytes for
// bulk_timeout.
Status AdoptDirectory(rocksdb::FileSystem& fs, BoundDirectory& bound);

}  // namespace hyperloop::plugin
