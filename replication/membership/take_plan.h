// The decisions of taking a group, as pure functions over the replicas' answers. Each refusal names
// the replica and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "membership/configuration.h"
#include "membership/standing.h"

namespace hyperloop {

// What the options say about a change of the group's replicas: the addresses of one that may be
// new and one that is to leave; empty: none.
struct ReplicaChange {
  std::string added, removed;
};

struct TakePlan {
  uint64_t epoch = 0;           // the epoch to seal
  std::string ahead;            // as WhoIsAhead
  Uuid group{};                 // nil if `format`: whoever takes the group names it
  bool format = false;          // no member ever served: the group is made now
  Configuration configuration;  // the configuration to install; its replicas are the members
  Configuration recorded;       // the newest one that a member has installed; epoch 0: none
  bool unserved = false;        // `recorded` is
  // Recorded replicas that do not answer are given up without a majority: a branch begins.
  bool forced = false;
  // Set if the group's replicas change: the replicas that stay, without the new ones; those that
  // leave, are replaced or do not answer are absent. It is installed at all of its replicas, and is
  // lasting, before `configuration` is installed at any of them under the next epoch. Whoever
  // decides by an older configuration then lacks too many replicas. So changes that were cut short
  // let one set of replicas serve, and not two.
  std::optional<Configuration> before_change;
  std::vector<size_t> joiners;  // their indices
  std::string change;           // how the group's replicas change, for the log; empty: they do not
  uint64_t region_size = 0;     // bytes, of every member
};

// Plans a taking by `members`, which answered, without `missing`, which did not. The configuration
// that the members recorded last decides who must agree, and not the caller's list: each of its
// replicas must be listed. A replica that it left out is taken in again. With rules.may_leave_out
// the plan leaves out `missing`, and a new member takes the place of a replica that was recorded at
// the same address. `change` adds one replica to the recorded ones, or removes one, while all
// others answer. If there is no majority, and all recorded replicas that are not there are in
// rules.given_up, the plan is forced. kInvalidArgument: a member is given up; members are of
// different branches, so that none may be made equal to another one; the newest epoch has two
// owners (IsOfRival), and of neither's configuration most replicas are there; a recorded replica is
// not listed, or another one is (the message names the recorded chain); one replica is listed
// twice; the regions differ in size, or have another size than `region_size` (0: any); the members
// belong to different groups; a member's epochs are far ahead; what it says makes no sense.
// kUnavailable: too few replicas answer; a replica has no RNIC.
Result<TakePlan> PlanTake(std::span<const MemberLook> members,
                          std::span<const MissingReplica> missing, uint64_t region_size,
                          const FailureRules& rules, const ReplicaChange& change = {});

// Checks that `logged`, the newest configuration in the log, names the replicas that the nodes have
// recorded, unless a newer one was installed that is not in the log. kCorruption names both.
Status CheckLogged(const TakePlan& plan, const Configuration& logged);

}  // namespace hyperloop
