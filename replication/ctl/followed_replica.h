// The replica that follow and snapshot read, and the group's replicas that vouch for it.
#pragma once

#include <string>
#include <vector>

#include "ctl/nodes.h"
#include "follow/replica_follower.h"
#include "follow/vouching.h"
#include "hyperloop/core/status.h"

namespace hyperloop::ctl {

// From the command line.
struct FollowedReplica {
  Where where;
  std::string number;  // or "self"
  std::string files;   // its directory of whole files; empty: where the cluster says
};
// Adds --dir, --uri, --replica and --files.
void AddFollowedReplica(CLI::App* command, FollowedReplica* replica);

// A way to it. kUnavailable: it is dead; its pool stays untouched, so that it can start again.
Result<ReplicaFollower::Replica> Connect(const FollowedReplica& replica);
// All replicas that the URI names.
Result<std::vector<Vouching::Witness>> WitnessesOf(const Where& where);

}  // namespace hyperloop::ctl
