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

struct TakePlan {
  uint64_t epoch = 0;  // the epoch to seal
  Uuid group{};
  bool format = false;           // no member ever served: the group is made now
  Configuration configuration;   // the configuration to install
  uint64_t installed_epoch = 0;  // the newest one of any member
  uint64_t region_size = 0;      // bytes, of every member
};

// Plans a taking. The configuration that the members recorded last decides who must agree, and not
// the caller's list: `members` must be exactly its replicas. kInvalidArgument: they are not (the
// message names the recorded chain); one replica is listed twice; the regions differ in size, or
// have another size than `region_size` (0: any); the members belong to different groups; some
// members are fresh and others are not. kUnavailable: a replica has no RNIC.
Result<TakePlan> PlanTake(std::span<const MemberLook> members, uint64_t region_size);

// Returns the first member whose owner lives: between the two looks its heartbeat moved, and the
// owner has not released it. nullptr: there is none.
const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);
// Whether no owner can be alive, so that no heartbeat need be watched.
bool NobodyToWatch(std::span<const MemberLook> members);

// Whether the replica's sealed owner is the one whose id has this digest.
bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest);

// What a primary may do whose group stopped answering.
enum class Standing {
  kOwner,    // every member still serves its epoch: new queues under the same epoch
  kReclaim,  // members promised a newer epoch to a rival that gave up or is dead: seal anew, go on
  kWait,     // a member is out of reach, or a rival with a promise of a newer epoch may still live
  kFenced,   // another primary was installed, or the members are of another configuration
};
struct Judgement {
  Standing standing = Standing::kWait;
  uint64_t epoch = 0;  // kReclaim: the epoch to seal
  std::string why;     // kWait, kFenced: the reason
};
// `now`: the answer of each replica of `own`, in its order; nothing if the replica did not answer.
// `before`: the answers of an earlier time, so long ago that a living owner's heartbeat has moved
// since; empty: there are none.
Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now);

// Checks that directory and group belong together, as Store::Take does. `binding`: what the group
// is bound to; nil: nothing. Of `options` only restore and rebind count. `files`: how many the
// group holds.
Status CheckPairing(const TakeRequest& request, const StoreOptions& options, const Uuid& group,
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
// Chooses the member whose log reaches farthest, among those that installed the newest epoch and
// have a sound log. Members whose logs are equal have equal bytes wherever their checksums are
// right, so the least damaged one of them is chosen.
// kCorruption: no sound log of the newest installed epoch reaches the last record that any member,
// however damaged or old, knows to be acknowledged.
Result<Choice> ChooseMember(std::span<const MemberContent> members);
// Checks that `logged`, the newest configuration in the log, names the replicas of the plan, unless
// a newer one was installed that is not in the log. kCorruption names both.
Status CheckLogged(const TakePlan& plan, const Configuration& logged);
// Returns the indices of the members that installed this epoch. They all executed the same records.
std::vector<size_t> MembersOf(std::span<const MemberContent> members, uint64_t installed_epoch);
// Returns one line for each damage of each member.
std::vector<std::string> DescribeDamage(std::span<const MemberContent> members);

}  // namespace hyperloop
