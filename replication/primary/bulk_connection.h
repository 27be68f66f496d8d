// The connection that carries files to a replica.
#pragma once

#include <chrono>
#include <cstdint>

#include "control/endpoint.h"
#include "control/trust.h"
#include "primary/bulk_target.h"
#include "primary/replica_handle.h"

namespace hyperloop {

// Connects to the bulk port of the replica at `endpoint` and asks as the owner `own`. Each call,
// and connecting, takes at most `timeout`; errors are ControlClient's and the replica's.
BulkConnect BulkConnectionTo(control::Endpoint endpoint, uint16_t port, control::Trust trust,
                             Ownership own, std::chrono::nanoseconds timeout);

}  // namespace hyperloop
