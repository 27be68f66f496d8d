// Decisions of taking a group, as pure functions over what the replicas said. Each refusal names
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
// Nobody can be alive: no watching is due.
bool NobodyToWatch(std::span<const MemberLook> members);

// The replica's sealed owner is the one whose id has this digest.
bool IsOwner(const control::HelloReplyT& hello, const Uuid& digest);

// What a primary may do whose group stopped answering.
enum class Standing {
  kOwner,    // every member still serves its epoch: new queues under the same epoch
  kReclaim,  // some promised a newer epoch to one who gave up or shows no life: seal anew, go on
  kWait,     // a member is out of reach, or one who was promised a newer epoch may still live
  kFenced,   // another primary was installed, or the members are of another configuration
};
struct Judgement {
  Standing standing = Standing::kWait;
  uint64_t epoch = 0;  // kReclaim: to be sealed
  std::string why;     // unless kOwner
};
// `now`: an entry for each replica of `own` in its order, empty where it did not answer. `before`:
// the same of an earlier look, so long ago that a living owner's heartbeat has moved since; empty:
// there was none.
Judgement JudgeStanding(const Configuration& own,
                        std::span<const std::optional<control::HelloReplyT>> before,
                        std::span<const std::optional<control::HelloReplyT>> now);

// Whether directory and group belong together (store.h, Take). `binding`: what the group is bound
// to; nil: nothing. `words`: restore and rebind.
Status CheckPairing(const TakeRequest& request, const StoreOptions& words, const Uuid& group,
                    const Binding& binding, size_t files);

// What a member says of its own region, before or after it was sealed.
struct MemberContent {
  std::string name;
  control::ContentT content;
};
struct Choice {
  size_t index = 0;
  uint64_t known_acked = 0;  // its log must reach at least this far
};
// The greatest (installed, last seq) of those whose log is sound; among equals, whose bytes are
// equal where their checksums hold, the one with the least damage. kCorruption: no sound log of the
// newest installed epoch reaches what any member, however damaged or old, knows to be acknowledged.
Result<Choice> ChooseMember(std::span<const MemberContent> members);
// The log says itself who must agree: `logged`, its newest configuration, must name the replicas of
// the plan unless a newer one was installed than the log has heard of. kCorruption names both.
Status CheckLogged(const TakePlan& plan, const Configuration& logged);
// Indices of those that installed this epoch: what one of them executed, all of them did.
std::vector<size_t> MembersOf(std::span<const MemberContent> members, uint64_t installed_epoch);
// A line for each member that is damaged or behind, for the log; empty: none is.
std::vector<std::string> DescribeDamage(std::span<const MemberContent> members);

}  // namespace hyperloop
