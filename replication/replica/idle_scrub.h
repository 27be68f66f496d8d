// IdleScrub: a replica's check of its own region while nobody writes to it, so that damage is found
// while the other members still have sound copies.
//
// It has neither clock nor thread: Tick must be called about once a second, on the thread that
// serves requests. A call checks at most kBudget bytes, which takes a few milliseconds. The check
// begins anew when the log has moved or memory ran out, and rests for kRestTicks calls after each
// whole pass. It mends nothing, because a node does not know which members are sound. A region that
// a primary is filling is neither sound nor damaged, and when it has been filled, what was found
// before says nothing about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "hyperloop/core/log.h"
#include "inspect/member_check.h"

namespace hyperloop {

class IdleScrub {
 public:
  static constexpr uint64_t kBudget = 8u << 20;
  static constexpr int kRestTicks = 600;
  // A log that moves is read only once in so many calls, because that takes some milliseconds.
  static constexpr int kScanTicks = 10;

  // `region` and `log` outlive this object; `log` may be null.
  IdleScrub(std::span<const std::byte> region, Log* log) : region_(region), log_(log) {}

  // `installed`: the node's installed epoch; `filling`: Node::filling.
  void Tick(uint64_t installed, bool filling);
  uint64_t passes() const { return passes_; }      // whole passes so far
  bool damaged() const { return !said_.empty(); }  // the last pass found damage

 private:
  void Step();
  // Forgets the damage that was found.
  void Forget();
  // Whether the log still begins and ends where it did when it was last read, which means that the
  // group's owner is idle.
  bool Still(const RegionInfo& info);
  // Whether no record follows `tail` in the ring.
  bool EndsAt(const LogCursor& tail, const RegionInfo& info) const;
  void Report(const MemberCheck& check, const RegionInfo& info);

  const std::span<const std::byte> region_;
  Log* const log_;
  // Where the log began and ended when it was last read.
  std::optional<LogCursor> head_, tail_;
  bool readable_ = true;  // the log was sound then
  int until_next_scan_ = 0;
  std::optional<Scrubber> scrubber_;
  int rest_ = 0;
  uint64_t passes_ = 0;
  uint64_t installed_ = 0;  // as of the last Tick
  std::string said_;        // the damage that was logged last
};

}  // namespace hyperloop
