// What is decided before a directory, or the group's owner, changes at all: whether the directory
// can be set to what the group holds without harm.
#pragma once

#include <rocksdb/file_system.h>

#include <string>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// kInvalidArgument when
// - tables or blob files that the group's MANIFEST names, and whose bytes were only local, are
//   missing in the directory or have another size, or
// - the directory has a history of its own: somebody opened it without the group.
// The message names the files and the ways out. What a crash of the primary or of its power leaves
// (files missing, short, longer, filled with zeros, damaged) is no history. Reads only.
Status JudgeDirectory(rocksdb::FileSystem& fs, const std::string& directory,
                      const GroupFiles& group);

}  // namespace hyperloop::plugin
