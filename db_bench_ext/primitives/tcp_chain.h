// The cost of the network between nodes apart, without RDMA: a message passes through the same
// nodes over bare TCP, from the primary's node through each replica's and back, over blocking
// sockets, with a thread for each node.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "measuring/latency_histogram.h"

namespace hyperloop::bench {

// Sends `number` messages of `bytes` bytes, each after the one before has come back. `cluster` has
// hosts apart. kAborted: interrupted. kTimedOut: nothing came back for ten seconds.
Result<LatencyHistogram> TcpChain(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                  const std::atomic<bool>& interrupted);

}  // namespace hyperloop::bench
