// Gives the group what local files of a bound directory hold.
#pragma once

#include <rocksdb/file_system.h>

#include <string>

#include "bound_directory.h"
#include "hyperloop/core/status.h"

namespace hyperloop::plugin {

// Copies the local file `path` into the group's log lane under `name`. Returns when all of it is
// durable on every replica.
Status ImportLog(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                 const std::string& name);
// Fsyncs the finished local file `path`, and lists it in the group under `name`, which sends it to
// the replicas. Does nothing for a directory.
Status ListIfFile(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                  const std::string& name);
// The same for a file that is fsynced already. kNotFound: there is no such file.
Status ListLocal(rocksdb::FileSystem& fs, BoundDirectory& bound, const std::string& path,
                 const std::string& name);
// Fsyncs and lists the files that could not be listed before and are still there
// (BoundDirectory::Unlisted). The error names the first of them that still cannot be listed.
Status ListUnlisted(rocksdb::FileSystem& fs, BoundDirectory& bound);

}  // namespace hyperloop::plugin
