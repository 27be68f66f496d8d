// The bare round trip to the RNIC: what any latency of a run is to be compared with.
#pragma once

#include <atomic>
#include <cstdint>

#include "hyperloop/core/rnic.h"
#include "measuring/latency_histogram.h"

namespace hyperloop::bench {

// Posts an 8-byte WRITE on a loopback queue pair of `device`, waits for its completion, `number`
// times over: one way from the processor to the RNIC and one way back, with one WQE between.
Result<LatencyHistogram> PingPong(rnic::Device& device, uint64_t number,
                                  const std::atomic<bool>& interrupted);

}  // namespace hyperloop::bench
