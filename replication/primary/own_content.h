// What the primary's own pool proves about the log of its group, when its bytes become the group's,
// and when they may take the place of what a replica holds.
//
// Each record is in the primary's own region before it is sent. A head and a record's acked_seq
// prove there, as at any member, that records are kept (log_scan.h). So if the replicas' logs all
// end before that, they went back to older copies of their pools. Then the own region, if it is
// sound and goes on where the best of their logs ends, has all that was acknowledged.
//
// What the pool holds of an earlier branch of the group's history proves nothing: those records
// were given up by somebody who knew it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "membership/take_plan.h"
#include "region/region_layout.h"

namespace hyperloop {

// The best log of the members. `image`: its member's whole region, redone or not.
struct BestLog {
  std::string name;  // the member's
  uint64_t last_seq = 0;
  std::span<const std::byte> image;
};

// Whether `own`, the region in the primary's pool at `pool`, must take the place of the best log,
// because it proves that a later record was acknowledged. kCorruption: it proves that, but its
// bytes cannot stand in; or it proves that another record was acknowledged than the best log has,
// or one of a later branch. The message names who says what, why, and the ways out.
Result<bool> OwnStandsIn(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, const BestLog& best);

// What a member says of itself, and its region up to the end of the journal, when no member's log
// will do (ChooseMember).
struct MemberProof {
  std::string name;
  bool joins = false;  // as MemberContent's
  uint64_t acked_seq = 0;
  uint64_t installed_epoch = 0;
  uint64_t served_epoch = 0;  // of the primary that it served last
  Uuid served_owner{};        // the digest of that one's id
  std::vector<std::byte> journal = {};
};

// Whether `own`, the region in the primary's pool at `pool`, takes the place of the members' logs,
// none of which reaches what is known to be acknowledged. So a taking from this pool is repeated
// that was cut short while it sent the log. The pool must know as much to be acknowledged as all of
// them, and have the history of each: the member's newest record is, or was, in the pool's log,
// too, or lies before its end, and the member served nobody after the last owner in that log.
// False: the pool knows less, or is not of this history. kCorruption: it knows as much, but cannot
// stand in; the message says why.
Result<bool> OwnReplaces(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, std::span<const MemberProof> members);

// What a replica's log proves to be acknowledged.
struct HeldProof {
  Uuid group{};            // nil: the region belongs to no group
  uint64_t acked_seq = 0;  // everything up to here was
  LogCursor last;          // the last such record that the log has; seq 0: none
};

// `theirs`: the replica's region up to the end of its journal. `region_size`: that of all of it.
HeldProof ProofHeld(std::span<const std::byte> theirs, uint64_t region_size);

// Checks that a taking which makes `own` the group's region drops nothing that a replica proves.
// `whose`: who holds that log, for the message. kCorruption: the replica proves that a record
// behind the log's end was acknowledged; the message names both, and the ways out.
Status CheckNothingBehind(const std::string& replica, const HeldProof& held,
                          std::span<const std::byte> own, const RegionInfo& info,
                          const std::string& whose);

enum class HeldBy : uint8_t { kMember, kRival };
// Checks that what a replica holds may be overwritten with `own`, the region of the primary that
// serves: each record that the replica's log proves to be acknowledged is in the primary's log.
// What that one's ring does not show any more it had, unless the replica is a rival's (IsOfRival),
// whose log is another one. kInvalidArgument: one is not, and the message says which.
Status CheckReplaceable(const std::string& replica, const HeldProof& held,
                        std::span<const std::byte> own, const RegionInfo& info,
                        HeldBy by = HeldBy::kMember);

// The greatest epoch of a record in the region's log; 0: there is none.
uint64_t LastEpoch(std::span<const std::byte> region);

}  // namespace hyperloop
