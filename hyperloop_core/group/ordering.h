// Ordering: which unacknowledged operations a new one must wait for. docs/group-primitives.md gives
// the reasons for the rule.
//
// An upstream hop's WRITE lands in a replica before that replica's own copy or forward for an
// earlier operation has run, so against each unacknowledged operation A a new operation B is held
// back when
//   B.write overlaps A.write, A.copy.source, A.copy.destination or A.cas, or
//   B.copy.destination or B.cas overlaps A.write (which A still forwards).
// Copies and CASes among themselves need no holding: every node runs them in one queue, in order.
//
// Cost: a few compares while nothing overlaps the bounding ranges of what is under way, otherwise a
// scan of at most `window` entries. No allocation after construction. Not thread safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hyperloop/core/group.h"

namespace hyperloop {

class Ordering {
 public:
  // Where the bytes of a gMEMCPY at a replica come from. With fanout the primary writes its own
  // bytes there. Then B is also held back when
  //   B.copy.source overlaps A.copy.destination, or B.copy.destination overlaps A.copy.source,
  // because the device may read and write the primary's bytes until A is acknowledged.
  enum class CopiesTake : uint8_t { kEachNodesOwn, kPrimarysBytes };

  explicit Ordering(uint32_t window, CopiesTake copies_take = CopiesTake::kEachNodesOwn);

  // The newest ticket after `acknowledged` that `operation` must wait for; 0: none.
  Ticket Conflict(const Operation& operation, Ticket acknowledged) const;
  // Records that `operation` was submitted as `ticket`, the next in order. All tickets up to
  // `acknowledged` are acknowledged, and at most `window` are not.
  void Add(const Operation& operation, Ticket ticket, Ticket acknowledged);

 private:
  struct Interval {  // empty: begin = end
    uint64_t begin = 0;
    uint64_t end = 0;
    bool Overlaps(const Interval& other) const { return begin < other.end && other.begin < end; }
  };
  struct Footprint {
    Interval write, source, destination, cas;
  };
  // The smallest intervals around those of a run of operations.
  struct Bounds {
    Footprint box;
    Ticket last = 0;
    void Include(const Footprint& footprint, Ticket ticket);
  };

  static Footprint FootprintOf(const Operation& operation);
  // Whether B may conflict with A. The answer is exact for footprints, and errs towards true for
  // bounds.
  bool Conflicts(const Footprint& b, const Footprint& a) const;

  const bool copies_of_primary_;
  uint64_t mask_ = 0;
  std::vector<Footprint> entries_;  // by ticket
  // Every unacknowledged operation is in `older_` or `newer_`. When all of `older_` are
  // acknowledged, `newer_` takes its place.
  Bounds older_, newer_;
};

inline Ordering::Footprint Ordering::FootprintOf(const Operation& op) {
  Footprint f;
  if (op.write.size != 0) f.write = {op.write.offset, op.write.offset + op.write.size};
  if (op.copy.size != 0) {
    f.source = {op.copy.source, op.copy.source + op.copy.size};
    f.destination = {op.copy.destination, op.copy.destination + op.copy.size};
  }
  if (op.cas.present) f.cas = {op.cas.offset, op.cas.offset + sizeof(uint64_t)};
  return f;
}

// An empty interval {0, 0} overlaps nothing, because nothing begins below its end. The terms are
// added rather than combined with ||, which saves branches.
inline bool Ordering::Conflicts(const Footprint& b, const Footprint& a) const {
  const int copies = b.source.Overlaps(a.destination) + b.destination.Overlaps(a.source);
  return b.write.Overlaps(a.write) + b.write.Overlaps(a.source) + b.write.Overlaps(a.destination) +
             b.write.Overlaps(a.cas) + b.destination.Overlaps(a.write) + b.cas.Overlaps(a.write) +
             copies_of_primary_ * copies !=
         0;
}

inline void Ordering::Bounds::Include(const Footprint& footprint, Ticket ticket) {
  const auto widen = [](Interval& around, const Interval& with) {
    if (with.begin == with.end) return;
    if (around.begin == around.end) {
      around = with;
    } else {
      around = {std::min(around.begin, with.begin), std::max(around.end, with.end)};
    }
  };
  widen(box.write, footprint.write);
  widen(box.source, footprint.source);
  widen(box.destination, footprint.destination);
  widen(box.cas, footprint.cas);
  last = ticket;
}

inline Ticket Ordering::Conflict(const Operation& operation, Ticket acknowledged) const {
  const Footprint footprint = FootprintOf(operation);
  const bool older = older_.last > acknowledged && Conflicts(footprint, older_.box);
  const bool newer = newer_.last > acknowledged && Conflicts(footprint, newer_.box);
  if (!older && !newer) return 0;
  for (Ticket ticket = std::max(older_.last, newer_.last); ticket > acknowledged; --ticket) {
    if (Conflicts(footprint, entries_[ticket & mask_])) return ticket;
  }
  return 0;
}

inline void Ordering::Add(const Operation& operation, Ticket ticket, Ticket acknowledged) {
  const Footprint footprint = FootprintOf(operation);
  entries_[ticket & mask_] = footprint;
  if (older_.last <= acknowledged) {
    older_ = newer_;
    newer_ = {};
  }
  newer_.Include(footprint, ticket);
}

}  // namespace hyperloop
