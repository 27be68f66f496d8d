// HeldFiles: what the replicas of a group hold of its whole files, for a primary that lacks some.
//
// The replicas are asked when the first question comes, each once; one that cannot be reached holds
// nothing. Not thread safe.
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
  explicit HeldFiles(std::vector<BulkConnect> replicas) : connect_(std::move(replicas)) {}

  bool Holds(const WholeFile& file);
  // Gives `sink` the file's bytes in order. kNotFound: no replica holds it. kCorruption: what
  // arrived is not the file; another call tries the other replicas. Another error: the sink's, or
  // the last replica's.
  using Sink = std::function<Status(std::span<const char>)>;
  Status Fetch(const WholeFile& file, const Sink& sink);

 private:
  struct Replica {
    std::unique_ptr<BulkTarget> target;
    std::set<WholeFile> held;
  };
  void AskAll();

  const std::vector<BulkConnect> connect_;
  bool asked_ = false;
  std::vector<Replica> replicas_;
};

}  // namespace hyperloop
