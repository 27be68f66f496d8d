// How the replicas of a group stand, for status and wait: which hold all files of the database, and
// whether the group survives the next failure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ctl/nodes.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"

namespace hyperloop::ctl {

// What was found of a replica.
struct Standing {
  const NodePlace* place = nullptr;
  const NodeStatus* status = nullptr;  // null: it cannot be looked at, or holds no sound log
  bool member = false;                 // of the group's newest configuration
  // What it is not known to hold of the files that the group lists. kUnavailable and others: it
  // cannot be asked.
  struct Lack {
    uint64_t files = 0, bytes = 0;
  };
  Result<Lack> lack = Lack();

  // Whether it is a member that runs and holds everything.
  bool whole() const;
};

// Judges the replicas of a group. `statuses`: what each of nodes.replicas() says of itself; null:
// it could not be read.
std::vector<Standing> StandingsOf(Nodes& nodes, std::span<const NodeStatus* const> statuses);

// The status with the newest installed configuration and the longest log; null: there is none.
const NodeStatus* NewestOf(std::span<const NodeStatus* const> statuses);

// "", or what this replica lacks: "2 files (4 MiB) lacking", or why that is not known.
std::string LackText(const Standing& standing);

// Why writes would stop if one more replica failed, by the options in the URI; empty: they would go
// on, or no configuration is installed.
std::string NextFailureOf(const std::string& uri, const NodeStatus* newest,
                          std::span<const Standing> standings);

}  // namespace hyperloop::ctl
