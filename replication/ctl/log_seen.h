// The log of a node, to be compared with another node's: of two that went on from one copy, each
// may have records that were acknowledged and that the other lacks. A taking judges by the same
// rules (own_content.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/replication/inspect.h"

namespace hyperloop::ctl {

// What is given to the constructors outlives it.
class LogSeen {
 public:
  // Reads the log when it is first needed, or with others. The node is at rest.
  LogSeen(const std::string& name, const NodeStatus& status, NodeView& view);
  // `image`: a copy of the node's region.
  LogSeen(const std::string& name, const NodeStatus& status, std::span<const std::byte> image);

  // Reads those of the logs that a comparison with this one needs, all at the same time. The first
  // error in their order.
  Status LoadForComparison(std::span<LogSeen> others) const;
  // Says it if `other` proves acknowledged records that are not in this log; empty: it does not.
  // What this log's ring does not show any more was there, unless two owners wrote the two under
  // one epoch. What was given up for this log's branch of the group's history is not missed.
  Result<std::string> Lacks(LogSeen& other);
  // Whether each lacks such records of the other, so that no opening makes them one.
  Result<bool> IsAnotherHistoryThan(LogSeen& other);

 private:
  Status Load();
  // Nothing of the other one can be missing here.
  bool IsBeyond(const LogSeen& other) const;

  const std::string& name_;
  const NodeStatus& status_;
  NodeView* view_ = nullptr;  // null once the log is read
  std::vector<std::byte> read_;
  std::span<const std::byte> image_;  // the region, at least up to the end of its journal
  uint64_t region_size_;
};

}  // namespace hyperloop::ctl
