// The first steps of whoever is to take a group, which change nothing in it: the replicas of the
// options, their answers to Hello, and the primary's own pool.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "control/trust.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/options.h"
#include "membership/take_plan.h"
#include "primary/asking.h"
#include "primary/replica_handle.h"
#include "region/pool.h"

namespace hyperloop {

// The replicas of the options, in their order; none is connected.
Result<std::vector<std::unique_ptr<ReplicaHandle>>> ReplicasOf(const StoreOptions& options,
                                                               const control::Trust& trust);

// What the options say about replicas that fail.
FailureRules RulesOf(const StoreOptions& options);

// Asks all replicas at once. One that does not answer is an error, unless a group may leave it out;
// then `missing` gets it.
Result<std::vector<MemberLook>> LookAtReplicas(
    std::span<const std::unique_ptr<ReplicaHandle>> replicas, const AnswerTimes& times,
    bool may_leave_out, std::vector<MissingReplica>* missing);

// Opens the pool that the options name, unless `*pool` holds it already, or makes it. Checks that
// it can hold the primary's copy of the plan's group. A pool of this group that is smaller than the
// replicas' is of before a resize: a new one takes its place, and `*set_aside` is the name that it
// has then; null: it stays, and `*pool` is null. kInvalidArgument: the pool is a replica's, of
// another group or too large. Else as Pool::Open and Pool::Create.
Status OpenOwnPool(const StoreOptions& options, const TakePlan& plan, std::unique_ptr<Pool>* pool,
                   std::string* set_aside);

}  // namespace hyperloop
