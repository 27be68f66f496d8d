// Decides, before a directory or the group's owner changes, whether the directory can be set to the
// group's content without loss.
#pragma once

#include <rocksdb/file_system.h>

#include <functional>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "local/local_files.h"

namespace hyperloop::plugin {

// kInvalidArgument when
// - tables or blob files that the group's MANIFEST names, or logs that it needs and that have left
//   the region, are missing in the directory or have another size (a log: other bytes), and no
//   replica within reach holds them, or
// - the directory has a history of its own: somebody opened it without the group. If CURRENT is
//   opaque, the bytes of CURRENT and the names of MANIFESTs tell.
//
// kCorruption when the directory has a log, or a table or blob file that its MANIFEST names, that
// the group must have had and has lost.
// The message names the files and the ways out. Files that a crash of the primary or a power
// failure left missing, short, longer, filled with zeros or damaged are not a history. Only reads.
// kNoSpace: there is no room for what the group holds and the directory lacks.
// `links`: whether a file is linked instead of written; null: none is.
Status JudgeDirectory(rocksdb::FileSystem& fs, const std::string& directory,
                      const GroupFiles& group,
                      const std::function<bool(const FileInfo&)>& links = nullptr);

// What the group's CURRENT says.
Result<Current> GroupCurrent(const GroupFiles& group);
// The listed tables and blob files that the MANIFEST of the group's CURRENT names, and the listed
// logs that it needs; all that are listed if it cannot be parsed; none without a MANIFEST. If
// CURRENT is opaque, all listed logs: RocksDB does not miss one that is lost.
Result<std::vector<FileInfo>> NeededFiles(const GroupFiles& group);
// The tables and blob files in the directory that this MANIFEST names and the group does not list:
// nobody could get them from a replica. If the MANIFEST cannot be parsed, or CURRENT is opaque, all
// that the group does not list: RocksDB removes those that it does not need.
Result<std::vector<std::string>> UnlistedFiles(rocksdb::FileSystem& fs,
                                               const std::string& directory,
                                               const GroupFiles& group);

}  // namespace hyperloop::plugin
