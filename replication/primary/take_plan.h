// Decisions of taking a group, as pure functions over what the replicas said. Each refusal names
// the replica and the remedy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "layout/region_layout.h"

namespace hyperloop {

// A replica's name for messages ("replica HOST:PORT") and its answer to Hello.
struct MemberLook {
  std::string name;
  control::HelloReplyT hello;
};

struct TakePlan {
  uint64_t epoch = 0;  // to be sealed
  Uuid group{};
  bool format = false;  // no member ever served: the group is made now
  uint64_t region_size = 0;
};

// What to seal. kInvalidArgument: one replica listed twice, regions of different sizes or of
// another size than `region_size` (0: any), members of different groups, formatted and fresh
// members mixed. kUnavailable: a replica has no RNIC.
Result<TakePlan> PlanTake(std::span<const MemberLook> members, uint64_t region_size);

// The first member whose owner lives, seen from two looks some time apart: its word moved and its
// owner has not released it. nullptr: none.
const MemberLook* LivingOwner(std::span<const MemberLook> before,
                              std::span<const MemberLook> after);
// Nobody can be alive: no watching is due.
bool NobodyToWatch(std::span<const MemberLook> members);

// Whether directory and group belong together (store.h, Take). `database`: what the group is bound
// to, nil: nothing.
Status CheckPairing(const TakeRequest& request, bool restore, const Uuid& group,
                    const Binding& binding, size_t files);

// A member's answer to Seal.
struct SealedMember {
  std::string name;
  control::SealReplyT reply;
};
struct Choice {
  size_t index = 0;
  uint64_t known_acked = 0;  // its log must reach at least this far
};
// The greatest (installed, last seq, executed seq) of those whose log is sound. kCorruption: no
// sound log of the newest installed epoch reaches what any member, however damaged or old, knows to
// be acknowledged.
Result<Choice> ChooseMember(std::span<const SealedMember> members);

}  // namespace hyperloop
