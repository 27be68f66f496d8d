// Bringer: brings to this machine what a directory lacks that is to be the group's, before the
// group is taken. So the taking only links it, and does not read it.
#pragma once

#include <rocksdb/file_system.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/prefetch.h"
#include "opening/checked_files.h"

namespace hyperloop::plugin {

class Bringer {
 public:
  struct Report {
    uint64_t here = 0;     // files of the group, in the directory or beside it
    uint64_t brought = 0;  // of these: came from replicas in this call
    uint64_t bytes = 0;    // of those
  };
  // `prefetch` brings files to BroughtFiles(directory), for which that is made. `replica_files`: a
  // replica's directory of files on this machine, from which they are linked where that is
  // possible; empty: there is none. The directory's LOCK is held.
  Bringer(rocksdb::FileSystem& fs, Prefetch& prefetch, std::string directory,
          std::string replica_files);

  // kInvalidArgument: the directory is not one that this group can have, and Store::Take would
  // refuse it.
  Status CheckDirectoryFits(const std::string& group) const;
  // Makes each table, blob file and log that the group lists, and that has left the region, be in
  // the directory, or beside it. kNoSpace: there would be too little room left for those who share
  // the disk. Other errors: some file is not here, and a later call may bring it; those that could
  // be had are here. A call does nothing if all of this group's present list was here a moment ago.
  Result<Report> BringAll(const std::string& group);

 private:
  using Clock = std::chrono::steady_clock;

  Status BringListed(const std::string& group, const std::vector<WholeFile>& files, Report* report);
  Status BringOne(const std::string& group, const WholeFile& file);
  // So that what was read is not read again by whoever comes after this process.
  Status WriteChecked();
  // The path at which the file is, sound; empty if it is nowhere.
  std::string FindHere(const std::string& group, const WholeFile& file);
  // Whether the replica's file is among what was brought now.
  bool LinkFromReplica(const std::string& group, const WholeFile& file);
  // The file among what was brought; empty: it is not there.
  std::string Beside(const std::string& group, const WholeFile& file) const;

  rocksdb::FileSystem& fs_;
  Prefetch& prefetch_;
  const std::string directory_;
  const std::string replica_files_;
  const std::string brought_;
  CheckedFiles checked_;
  Clock::time_point written_{};   // when WriteChecked was called last
  std::vector<WholeFile> whole_;  // all of these were here
  Clock::time_point looked_{};    // at that time
};

}  // namespace hyperloop::plugin
