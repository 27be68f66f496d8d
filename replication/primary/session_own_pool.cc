// Session: a taking in which the primary's own pool has what all replicas lost (own_content.h).
#include <algorithm>

#include "hyperloop/core/text.h"
#include "journal/redo.h"
#include "primary/own_content.h"
#include "primary/session.h"

namespace hyperloop {

// The pool is only read. Null: it does not stand in; else a copy of it, redone.
Result<std::unique_ptr<Pool>> Session::JudgeOwnPool(const TakePlan& plan, const BestLog& best) {
  Result<std::unique_ptr<Pool>> own = Pool::OpenCopyOnWrite(options_.pool);
  if (own.status().code() == Code::kNotFound) return std::unique_ptr<Pool>();
  if (!own.ok()) return own;
  const std::span<std::byte> region = (*own)->region();
  HL_ASSIGN_OR_RETURN(const bool stands_in, OwnStandsIn(region, options_.pool, plan, best));
  if (!stands_in) return std::unique_ptr<Pool>();
  HL_ASSIGN_OR_RETURN(const RegionInfo info, ParseSuperblock(region, region.size()));
  HL_RETURN_IF_ERROR(Redo(region, info, 0).status());
  stands_in_for_ = best.last_seq;
  return own;
}

// Makes every member equal to the own region, which has what all of them lost. Its log stays, so a
// taking that is cut short between two members is repeated. One that is cut within a member's log
// can leave a gap there, by which the next one is refused before it asks this pool.
Status Session::TakeOwnRegion(const TakeRequest& request, const TakePlan& plan,
                              const MemberContent& best, const std::vector<MemberContent>& sealed) {
  if (best.content.last_seq != *stands_in_for_)
    return Busy(Text("another primary writes: the log of ", best.name,
                     " is longer than a moment ago; try again when that one has closed"));
  times_.Begin("checking");
  HL_RETURN_IF_ERROR(RedoOwn(best.content.last_seq, {}, 0));
  Say(LogLevel::kWarn,
      Text(
          "the replicas went back to older copies of their pools: the best of their logs, that of ",
          best.name, ", ends at record ", best.content.last_seq,
          ", and the primary's own pool proves that later ones were acknowledged; all of them "
          "become what it holds, up to record ",
          log_state_.tail.seq));
  times_.Begin("judging");
  HL_RETURN_IF_ERROR(JudgeContent(request, plan, pool_->region()));
  times_.Begin("equalising");
  std::vector<bool> cut;
  for (const MemberContent& each : sealed)
    cut.push_back(!each.content.log_error.empty() || each.content.last_seq > log_state_.tail.seq);
  return PushOwn(std::move(cut));
}

}  // namespace hyperloop
