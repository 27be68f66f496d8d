// The cost of the network between nodes apart, without RDMA: what a message of an operation's size
// takes over bare TCP between the same nodes, over blocking sockets, with a thread for each node.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/emulated_cluster.h"
#include "measuring/latency_histogram.h"

namespace hyperloop::bench {

// Both exchange `number` messages of `bytes` bytes, each after the one before is answered.
// `cluster` has hosts apart. kAborted: interrupted. kTimedOut: no answer came for ten seconds.

// As a chain writes: a message passes from the primary's node through each replica's and back.
Result<LatencyHistogram> TcpChain(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                  const std::atomic<bool>& interrupted);
// As a fan-out writes: the primary's node sends the message to each replica's, and each answers
// with one byte once it has all of it.
Result<LatencyHistogram> TcpFanout(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                   const std::atomic<bool>& interrupted);

}  // namespace hyperloop::bench
