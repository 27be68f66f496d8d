// HeldFiles: which whole files the replicas of a group hold, for a primary that lacks some.
//
// Each call of Holds or Fetch asks the replicas that have not answered yet. A replica that has
// answered is not asked again. Not thread safe.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"
#include "primary/bulk_target.h"

namespace hyperloop {

class HeldFiles {
 public:
  explicit HeldFiles(std::vector<BulkConnect> replicas);

  // Whether a replica that has answered holds `file`.
  bool Holds(const WholeFile& file);
  // Gives `sink` the file's bytes in order. kNotFound: all replicas have answered, and none holds
  // the file. kUnavailable: no replica that has answered holds it, and at least one has not
  // answered. kCorruption: the bytes that `sink` got are not the file's; another call tries other
  // replicas. Any other error is that of `sink`, or of the last replica that was tried.
  using Sink = std::function<Status(std::span<const char>)>;
  Status Fetch(const WholeFile& file, const Sink& sink);

 private:
  struct Replica {
    BulkConnect connect;
    std::unique_ptr<BulkTarget> target;  // null: it has not answered
    std::set<WholeFile> held;
  };
  // Asks the replicas that have not answered yet. Returns the last error; ok: all have answered.
  Status AskAll();

  std::vector<Replica> replicas_;
};

}  // namespace hyperloop
