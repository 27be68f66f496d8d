// The decisions of taking a group, as pure functions over the replicas' answers. Each refusal names
// the replica and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "layout/region_layout.h"

namespace hyperloop {

// A replica and its answer to Hello.
struct MemberLook {
  std::string name;     // for messages: "replica HOST:PORT"
  std::string address;  // its control endpoint
  control::HelloReplyT hello;
};

// A replica that is listed but cannot serve now.
struct MissingReplica {
  std::string name;     // as MemberLook's
  std::string address;  // as MemberLook's
  std::string why;
  bool refused = false;  // it answers, but what it holds must not be overwritten
};

// What the options say about replicas that fail.
struct FailureRules {
  bool may_leave_out = false;              // on_replica_failure=continue
  size_t min_replicas = 0;                 // as the option
  std::vector<std::string> given_up = {};  // StoreOptions::given_up

  // Whether a taking is planned although replicas do not answer.
  bool bears_missing() const { return may_leave_out || !given_up.empty(); }
};
// How many replicas of `configuration` must be there to go on without the others, or SIZE_MAX if
// none may be left out. It is at least a majority of them, and of all that the group has, absent
// ones included. So any two sets of replicas that serve share one, whatever configurations were
// installed by some of their members only.
size_t LeastReplicas(const Configuration& configuration, const FailureRules& rules);

// How the replicas of a group stand.
struct Redundancy {
  size_t members = 0, absent = 0;
  size_t silent = 0;         // members that answer no request
  size_t holders = 0;        // members that answer, and hold the files of the database
  bool catching_up = false;  // a member does not hold them yet
};
// Why writes would stop if one more replica failed; empty: they would go on.
std::string NextFailure(const Redundancy& now, const FailureRules& rules);

// What the options say about a change of the group's replicas: the addresses of one that may be
// new and one that is to leave; empty: none.
struct ReplicaChange {
  std::string added, removed;
};

struct TakePlan {
  uint64_t epoch = 0;  // the epoch to seal
  // Which member alone demands an epoch far beyond those of all others, for messages; empty: none.
  std::string ahead;
  Uuid group{};
  bool format = false;          // no member ever served: the group is made now
  Configuration configuration;  // the configuration to install; its replicas are the members
  Configuration recorded;       // the newest one that a member has installed; epoch 0: none
  bool unserved = false;        // no recorded replica that answers has served `recorded`
  // Recorded replicas that do not answer are given up without a majority. `configuration` is then
  // the first one of a new branch, which begins with the owner that installs it.
  bool forced = false;
  // Set if the group's replicas change: the replicas that stay, without the new ones; those that
  // leave, are replaced or do not answer are absent. It is installed at all of its replicas, and
  // stays so, before `configuration` is installed, under the next epoch, at any of them. Whoever
  // decides by an older configuration then lacks too many replicas. So changes that were cut short
  // let one set of replicas serve, and not two.
  std::optional<Configuration> before_change;
  // Indices of the members that were left out before, are new in the group, or take the place of
  // one whose pool is lost.
  std::vector<size_t> joiners;
  std::string change;        // how the group's replicas change, for the log; empty: they do not
  uint64_t region_size = 0;  // bytes, of every member
};

// Plans a taking by `members`, which answered, without `missing`, which did not. The configuration
// that the members recorded last decides who must agree, and not the caller's list: each of its
// replicas must be listed. A replica that it left out is taken in again. With rules.may_leave_out
// the plan leaves out `missing`, and a new member takes the place of a replica that was recorded at
// the same address. `change` adds one replica to the recorded ones, or removes one, while all
// others answer. If there is no majority, and all recorded replicas that are not there are in
// rules.given_up, the plan is forced. kInvalidArgument: a member is given up; members are of
// different branches, so that none may be made equal to another one; a recorded replica is not
// listed, or another one is (the message names the recorded chain); one replica is listed twice;
// the regions differ in size, or have another size than `region_size` (0: any); the members belong
// to different groups; a member's epochs are far ahead; what it says makes no sense. kUnavailable:
// too few replicas answer; a replica has no RNIC.
Result<TakePlan> PlanTake(std::span<const MemberLook> members,
                          std::span<const MissingReplica> missing, uint64_t region_size,
                          const FailureRules& rules, const ReplicaChange& change = {});

// Why what `look` tells of itself is said by no replica that works; empty: it may be.
std::string WhyNonsense(const MemberLook& look);

// Why the epochs that `look` tells are not those of a taking: they are beyond those of all other
// `looks` by more than all takings of a group's life. Empty: they may be. So one member's claim
// costs the others one Seal each, and few of the epochs that they will need.
std::string WhyFarAhead(const MemberLook& look, std::span<const MemberLook> looks);

// Returns the first member whose owner lives: between the two looks its heartbeat moved, and the
// owner has not released it. nullptr: there is none.
const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);
// Whether no owner can be alive, so that no heartbeat need be watched.
bool NobodyToWatch(std::span<const MemberLook> members);

// Returns the first member that another primary sealed or installed between the two looks: what was
// read of it meanwhile may be of before or after. nullptr: there is none.
const MemberLook* MovedMember(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);

// Checks that directory and group belong together, as Store::Take does. `binding`: what the group
// is bound to; nil: nothing. Of `options` only restore and rebind count. `files`: how many the
// group holds.
Status CheckPairing(const TakeRequest& request, const StoreOptions& options, const Uuid& group,
                    const Binding& binding, size_t files);

// Checks that `logged`, the newest configuration in the log, names the replicas that the nodes have
// recorded, unless a newer one was installed that is not in the log. kCorruption names both.
Status CheckLogged(const TakePlan& plan, const Configuration& logged);

}  // namespace hyperloop
