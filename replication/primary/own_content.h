// What the primary's own pool proves about the log of its group, and when its bytes become the
// group's.
//
// Each record is in the primary's own region before it is sent. A head and a record's acked_seq
// prove there, as at any member, that records are kept (log_scan.h). So if the replicas' logs all
// end before that, they went back to older copies of their pools. Then the own region, if it is
// sound and goes on where the best of their logs ends, has all that was acknowledged.
//
// What the pool holds of another branch of the group's history proves nothing: those records were
// given up by somebody who knew it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hyperloop/core/status.h"
#include "primary/take_plan.h"

namespace hyperloop {

// The best log of the members. `image`: its member's whole region, redone or not.
struct BestLog {
  std::string name;  // the member's
  uint64_t last_seq = 0;
  std::span<const std::byte> image;
};

// Whether `own`, the region in the primary's pool at `pool`, must take the place of the best log,
// because it proves that a later record was acknowledged. kCorruption: it proves that, but its
// bytes cannot stand in; the message names who says what, why, and the ways out.
Result<bool> OwnStandsIn(std::span<const std::byte> own, const std::string& pool,
                         const TakePlan& plan, const BestLog& best);

// The greatest epoch of a record in the region's log; 0: there is none.
uint64_t LastEpoch(std::span<const std::byte> region);

}  // namespace hyperloop
