// Reading the log of a region image: what is valid, where it ends, and whether something is
// missing. Sans-IO.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "hyperloop/core/status.h"
#include "layout/record.h"

namespace hyperloop {

struct LogState {
  Head head;                   // newest valid head copy
  LogCursor tail;              // behind the last valid record; equals head.cursor for an empty log
  uint64_t highest_acked = 0;  // greatest acked_seq that any valid record (or the head) states
  uint64_t records = 0;        // between head and tail, pads included
};

// Called for each record of the log in order; a non-ok status ends the walk and is returned.
using RecordVisitor = std::function<Status(const RecordView& record, uint64_t ring_offset)>;

// Walks the log from the head by the chain rule. `image`: the whole region, or its first
// journal_end() bytes. The first record that does not continue the log ends it, unless something
// shows that it was acknowledged: any valid record elsewhere in the ring, or `known_acked`
// (greatest acked_seq known to the caller from other members; 0: none), with acked_seq at or above
// the missing one. Then kCorruption names seq, ring offset and evidence, and another member's log
// must be used. kCorruption also for a record whose content breaks the layout though its CRC holds.
Result<LogState> ScanLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked = 0, const RecordVisitor& visitor = nullptr);

// The greatest seq that anything in the journal shows to be acknowledged: its head, or any valid
// record, of whatever lap or epoch and wherever in the ring. That is a fact also when ScanLog calls
// the log damaged: no other member's log may be taken that ends before it. 0: nothing does.
uint64_t HighestAcked(std::span<const std::byte> image, const RegionInfo& info);

}  // namespace hyperloop
