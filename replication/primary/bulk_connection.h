// BulkConnectionTo: connections of the bulk lane to a replica.
#pragma once

#include <chrono>
#include <cstdint>

#include "control/endpoint.h"
#include "control/trust.h"
#include "primary/bulk_target.h"
#include "primary/replica_handle.h"

namespace hyperloop {

// Returns a function that connects to the bulk port of the replica at `endpoint`, and asks there as
// the owner `own`. Connecting, and each call of the BulkTarget, takes at most `timeout`. Errors are
// those of ControlClient and of the replica.
BulkConnect BulkConnectionTo(control::Endpoint endpoint, uint16_t port, control::Trust trust,
                             Ownership own, std::chrono::nanoseconds timeout);

}  // namespace hyperloop
