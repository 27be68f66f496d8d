// Reads the log of a region image: which records are valid, where the log ends, and whether records
// are missing. Sans-IO.
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
// journal_end() bytes. The log ends before the first record that does not continue it, unless there
// is evidence that the missing record was acknowledged: a valid record elsewhere in the ring whose
// acked_seq reaches it, or `known_acked` (greatest acked_seq that the caller knows from other
// members; 0: none). Then kCorruption names seq, ring offset and evidence, and another member's log
// must be used. kCorruption also: a record's CRC is right but its content breaks the layout.
Result<LogState> ScanLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked = 0, const RecordVisitor& visitor = nullptr);

// The greatest seq that the head or a valid record anywhere in the ring, of any lap or epoch, shows
// to be acknowledged; 0: none. It holds even if ScanLog finds the log damaged: no other member's
// log may be taken that ends before it.
uint64_t HighestAcked(std::span<const std::byte> image, const RegionInfo& info);

}  // namespace hyperloop
