// Judgement: what a primary that serves may do with its group, as pure functions over the replicas'
// answers: go on, take replicas in, let one leave. Each refusal names the replica and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "membership/configuration.h"

namespace hyperloop {

// What a primary may do whose group stopped answering.
enum class Standing {
  kOwner,    // every member still serves its epoch: new queues under the same epoch
  kReclaim,  // members promised a newer epoch to a rival that gave up or is dead: seal anew, go on
  kShrink,   // enough members are there: seal them anew, and go on without the missing ones
  kWait,     // a member is out of reach, or a rival with a promise of a newer epoch may still live
  kFenced,   // another primary has connected a member, and may have a majority
};
struct Judgement {
  Standing standing = Standing::kWait;
  uint64_t epoch = 0;  // kReclaim, kShrink: the epoch to seal
  // kWait, kShrink, kFenced: the reason. kReclaim: which rival was promised the group; empty: none,
  // as what this primary sealed before, and did not finish, is its own.
  std::string why;
  // The replicas that did not answer, or have another pool than the configuration's.
  std::vector<size_t> missing;
  std::vector<std::string> reasons = {};  // why, of each missing one
};
// `now`: the answer of each replica of `own`, in its order; nothing if the replica did not answer.
// `before`: the answers of an earlier time, so long ago that a living owner's heartbeat has moved
// since; empty: there are none. `least`: how many must be there to go on without the others.
// `refused`: of each replica, why it must not be made equal to the primary, and counts as missing;
// empty: it may be. An empty list: each may.
//
// A member that says that it served another primary counts as missing while most members have still
// promised nothing newer than to `own`'s primary: nobody else can have a majority then. So one that
// lies ends no primary.
Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now, size_t least,
                        std::span<const std::string> refused = {});

// Checks that a replica which `own` leaves out can be taken in again, by its answers to two Hellos
// so far apart that a living owner's heartbeat has moved in between. kUnavailable: not now. Any
// other error: not as it is; the message names the remedy.
Status CheckJoiner(const Configuration& own, const Uuid& group, uint64_t region_size,
                   const Configuration::Replica& absent, const control::HelloReplyT& before,
                   const control::HelloReplyT& now);

// Checks that `replica`, which `own` does not have, can become its absent replica, from where it is
// taken in. The answers and errors are as CheckJoiner's. kUnavailable also: a replica is absent, so
// that a majority of all replicas that the group would have might not be there.
Status CheckNewcomer(const Configuration& own, const Uuid& group, uint64_t region_size,
                     const Configuration::Replica& replica, const control::HelloReplyT& before,
                     const control::HelloReplyT& now);

// What a primary installs that brings its group back: `next` begins as its own configuration.
//
// Makes those absent that are missing.
void LeaveOut(const Judgement& judgement, Configuration* next);
// Makes the absent replica at `address` one that counts, and raises `epoch` beyond what it has
// sealed. Nothing, if it is not absent. `chain`: the order of the addresses. Errors: CheckJoiner's.
Status TakeIn(const Configuration& own, const Uuid& group, uint64_t region_size,
              const std::string& address, const control::HelloReplyT& hello,
              const std::vector<std::string>& chain, Configuration* next, uint64_t* epoch);
// Makes a new replica an absent one, from where TakeIn takes it in: a change of the group's
// replicas takes two steps (TakePlan::before_change). Errors: CheckNewcomer's.
Status Announce(const Uuid& group, uint64_t region_size, const std::string& address,
                const control::HelloReplyT& hello, Configuration* next);

// Checks that a replica can leave `own` for good while it serves: it is the only one that is
// absent. Those that decide stay the same then. kUnavailable: not now.
Status CheckLeaver(const Configuration& own, const std::string& address);

}  // namespace hyperloop
