// Sets a bound directory to what its group holds.
#pragma once

#include <rocksdb/file_system.h>

#include <string>
#include <vector>

#include "bound/bound_directory.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "near_files.h"

namespace hyperloop::plugin {

// Sets the directory's files to what the group holds, as an opening does after the taking. Notes in
// `bound` what RocksDB may not see, must list or has finished. The log says what was changed.
// `anew`: the directory was not the group's before, or is not known to have been set to it.
Status SetLocalToGroup(rocksdb::FileSystem& fs, BoundDirectory& bound, NearFiles& near,
                       const TakeResult& taken, bool anew);

// Removes the log-lane files of a group that holds no database. A group without CURRENT holds none.
// `closing`: nor does one whose CURRENT names a MANIFEST that it does not have, if it has neither a
// log with bytes nor a table or blob file; and the local files are removed, too. A creation or a
// DestroyDB that was cut short leaves such files. DestroyDB lists the directory before it locks it,
// so it does not see files that only the group has. A new database would fail because of such
// files. `removed` gets the names.
Status RemoveLeftovers(rocksdb::FileSystem& fs, BoundDirectory& bound, bool closing,
                       std::vector<std::string>* removed);

}  // namespace hyperloop::plugin
