// What the RNIC counts for each queue pair, and sums up for each emulated host.
#pragma once

#include <cstdint>

namespace hyperloop::softrnic {

// The counters of a queue pair, by their exported names. A host's counters are the sums over all
// queue pairs that it has had since its first client came.
// clang-format off
#define HL_QP_COUNTERS(X) \
  X(wqes_fetched) X(wqes_executed) X(nops) X(sends) X(writes) X(reads) X(atomics) X(waits) \
  X(enables) X(read_responses_nonzero) X(bytes_sent) X(bytes_received) X(recv_scatter_bytes) \
  X(ring_bytes_by_scatter) X(ring_bytes_by_other) X(cqes) X(error_cqes) X(rnr_stalls) \
  X(rnr_retries) X(ack_stalls) X(ack_timeouts) \
  X(wait_stalls) X(fence_stalls) X(stale_fetches) X(doorbells) X(media_flushes) X(media_flushed_bytes) \
  X(link_packets_sent) X(link_packets_received) X(link_retransmits) X(link_duplicates)
// clang-format on

struct QpCounters {
#define HL_DECLARE(name) uint64_t name = 0;
  HL_QP_COUNTERS(HL_DECLARE)
#undef HL_DECLARE
};

}  // namespace hyperloop::softrnic
