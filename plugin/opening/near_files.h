// NearFiles: files on this machine from which a directory that is to be bound gets the tables, blob
// files and logs that it lacks, by links. What cannot be linked is sent by a replica.
#pragma once

#include <rocksdb/file_system.h>

#include <string>
#include <utility>
#include <vector>

#include "checked_files.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop::plugin {

// Not thread safe.
class NearFiles {
 public:
  // `places`: directories of files, in the form of a replica's. A file there is linked if the
  // directory to be bound is on the same file system, and belongs to the same user. `checked`: what
  // is known to be sound, in those places or in the directory itself.
  explicit NearFiles(std::vector<std::string> places = {}, CheckedFiles checked = {})
      : places_(std::move(places)), checked_(std::move(checked)) {}

  // What a standby or a switchover has brought for the directory is near from now on, if there is
  // any.
  void UseBrought(const std::string& directory, Log& log);
  // It is linked into the directory, or not needed any more.
  void RemoveBrought(const std::string& directory, Log& log);
  // The near file that can be linked into the directory, or why there is none.
  Result<std::string> Find(const std::string& group, const FileInfo& info,
                           const std::string& directory) const;
  // Links `path` to the near file. False: it cannot be linked, or is not sound; the log says why.
  bool Link(rocksdb::FileSystem& fs, const std::string& group, const FileInfo& info,
            const std::string& path, Log& log);
  // Whether the file has the content that the group lists. kNotFound: there is no such file.
  Result<bool> IsSound(rocksdb::FileSystem& fs, const std::string& path, const FileInfo& info);

 private:
  std::vector<std::string> places_;
  CheckedFiles checked_;
};

}  // namespace hyperloop::plugin
