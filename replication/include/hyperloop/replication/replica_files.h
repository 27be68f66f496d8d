// What a replica on this machine keeps beside its pool: whole files, which never change.
#pragma once

#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"

namespace hyperloop {

// The path of a finished file in a replica's directory of files, which can be linked into the
// directory `into`. `group`: its id, as text. The bytes passed the file's checksum when they
// arrived. kNotFound: the replica does not hold it. kNotSupported: it is on another file system
// than `into`, or belongs to another user. kInvalidArgument: a bad name. kPermissionDenied: another
// user owns the replica's directory, or may write there.
Result<std::string> FindLinkableFile(const std::string& replica_files, const std::string& group,
                                     const WholeFile& file, const std::string& into);

}  // namespace hyperloop
