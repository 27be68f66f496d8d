// The bare round trip to the RNIC, to which any latency of a run should be related.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyperloop/core/rnic.h"
#include "measuring/latency_histogram.h"

namespace hyperloop::bench {

// Posts an 8-byte WRITE on a loopback queue pair of `device`, waits for its completion, `number`
// times: one way from the processor to the RNIC and one way back, with one WQE in between.
Result<LatencyHistogram> PingPong(rnic::Device& device, uint64_t number,
                                  const std::atomic<bool>& interrupted);

}  // namespace hyperloop::bench
