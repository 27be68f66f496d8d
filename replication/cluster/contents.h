// What of a cluster's directory the cluster has made: its processes, the tools that change it, and
// primaries whose pool is there.
#pragma once

#include "cluster/cluster_paths.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"

namespace hyperloop::cluster {

// Tells the two kinds of entries apart by name and type. Follows no links. Sets all of the result
// but `running`.
Result<ClusterContents> ListContents(const Paths& paths);

// Removes `contents.made` in its order; what is gone already is no error.
Status RemoveMade(const ClusterContents& contents);

}  // namespace hyperloop::cluster
