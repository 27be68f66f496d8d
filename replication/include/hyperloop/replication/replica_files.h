// What a replica on this machine keeps beside its pool: whole files, which never change.
#pragma once

#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

// The path of a finished file in a replica's directory of files. `group`: its id, as text. The
// bytes passed the file's checksum when they arrived. kNotFound: the replica does not hold it.
// kInvalidArgument: a bad name. kPermissionDenied: another user owns the directory, or may write
// there.
Result<std::string> PathOfHeldFile(const std::string& replica_files, const std::string& group,
                                   const WholeFile& file);

}  // namespace hyperloop
