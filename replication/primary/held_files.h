// HeldFiles: what the replicas of a group hold of its whole files, for a primary that lacks some.
//
// The replicas are asked when the first question comes, each once, until all have answered. Not
// thread safe.
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

  // Whether a replica within reach holds it.
  bool Holds(const WholeFile& file);
  // Gives `sink` the file's bytes in order. kNotFound: all replicas answered, and none holds it.
  // kUnavailable: none within reach does, and at least one is out of reach. kCorruption: what
  // arrived is not the file; another call tries the other replicas. Another error: the sink's, or
  // the last replica's.
  using Sink = std::function<Status(std::span<const char>)>;
  Status Fetch(const WholeFile& file, const Sink& sink);

 private:
  struct Replica {
    BulkConnect connect;
    std::unique_ptr<BulkTarget> target;  // null: has not answered
    std::set<WholeFile> held;
  };
  // The last error of those that do not answer.
  Status AskAll();

  std::vector<Replica> replicas_;
};

}  // namespace hyperloop
