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

// A replica's name for messages ("replica HOST:PORT"), its control endpoint, and its answer to
// Hello.
struct MemberLook {
  std::string name;
  std::string address;
  control::HelloReplyT hello;
};

struct TakePlan {
  uint64_t epoch = 0;  // to be sealed
  Uuid group{};
  bool format = false;           // no member ever served: the group is made now
  Configuration configuration;   // to be installed
  uint64_t installed_epoch = 0;  // the newest of any member
  uint64_t region_size = 0;
};

// What to seal. The configuration that the members recorded last decides who must agree, not the
// caller's list: all its replicas must be among `members`, and nobody else. kInvalidArgument: they
// are not (the recorded chain is named), one replica listed twice, regions of different sizes or of
// another size than `region_size` (0: any), members of different groups, formatted and fresh
// members mixed. kUnavailable: a replica has no RNIC.
Result<TakePlan> PlanTake(std::span<const MemberLook> members, uint64_t region_size);

// The first member whose owner lives, seen from two looks some time apart: its word moved and its
// owner has not released it. nullptr: none.
const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);
// Whether no owner can be alive, so that no heartbeat need be watched.
bool NobodyToWatch(std::span<const MemberLook> members);

// Whether the replica's sealed owner is the one whose id has this digest.
bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest);

// What a primary may do when its group stopped answering.
enum class Standing {
  kOwner,    // every member still serves its epoch: new queues under the same epoch
  kReclaim,  // members promised a newer epoch to a rival that gave up or is dead: seal anew, go on
  kWait,     // a member is out of reach, or a rival with a promise of a newer epoch may still live
  kFenced,   // another primary was installed, or the members are of another configuration
};
struct Judgement {
  Standing standing = Standing::kWait;
  uint64_t epoch = 0;  // kReclaim: to be sealed
  std::string why;     // unless kOwner
};
// `now`: the answer of each replica of `own` in its order, empty if it did not answer. `before`:
// the same from an earlier time, so long ago that a living owner's heartbeat has moved since;
// empty: there is none.
Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now);

// Whether directory and group belong together (store.h, Take). `binding`: what the group is bound
// to; nil: nothing. `words`: restore and rebind.
Status CheckPairing(const TakeRequest& request, const StoreOptions& words, const Uuid& group,
                    const Binding& binding, size_t files);

// A member's report on its own region, before or after it was sealed.
struct MemberContent {
  std::string name;
  control::ContentT content;
};
struct Choice {
  size_t index = 0;
  uint64_t known_acked = 0;  // its log must reach at least this far
};
// Chooses the greatest (installed, last seq) of the members with a sound log. Equal members have
// equal bytes wherever their checksums are right; of those the least damaged is chosen.
// kCorruption: no sound log of the newest installed epoch reaches the last record that any member,
// however damaged or old, knows to be acknowledged.
Result<Choice> ChooseMember(std::span<const MemberContent> members);
// Checks that `logged`, the newest configuration in the log, names the replicas of the plan, unless
// a newer one was installed that is not in the log. kCorruption names both.
Status CheckLogged(const TakePlan& plan, const Configuration& logged);
// Indices of the members that installed this epoch: they all executed the same records.
std::vector<size_t> MembersOf(std::span<const MemberContent> members, uint64_t installed_epoch);
// One line for the log about each member that is damaged or behind; empty if none is.
std::vector<std::string> DescribeDamage(std::span<const MemberContent> members);

}  // namespace hyperloop
