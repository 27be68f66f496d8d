// Reads the log of a region image in memory: which records are valid, where the log ends, and
// whether records are missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "hyperloop/core/status.h"
#include "region/record.h"

namespace hyperloop {

struct LogState {
  Head head;                   // the newest valid copy
  LogCursor tail;              // behind the last valid record; equals head.cursor for an empty log
  uint64_t highest_acked = 0;  // the greatest acked_seq that the head or a record of the log states
  uint64_t records = 0;        // how many lie between head and tail, pads included
};

// Whether a valid record continues a log that ends at `tail` (region/record.h says when).
bool Continues(const RecordHeader& header, const LogCursor& tail);

// Called for each record of the log in order; a non-ok status ends the walk and is returned.
using RecordVisitor = std::function<Status(const RecordView& record, uint64_t ring_offset)>;

// Walks the log from the head. `image`: the whole region, or its first journal_end() bytes. The log
// ends before the first record that does not continue it (record.h says when a record does).
// kCorruption: there is evidence that the missing record was acknowledged, so another member's log
// must be used. The evidence is a valid record anywhere in the ring whose acked_seq reaches it, or
// `known_acked`, the greatest acked_seq that the caller knows from other members (0: none). The
// message names seq, region offset and evidence. kCorruption also: a record's CRC is right, but its
// content breaks the layout.
Result<LogState> ScanLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked = 0, const RecordVisitor& visitor = nullptr);

// What one reading of a log gives.
struct LogReading {
  Status error;        // ScanLog's
  LogState log;        // after an error: as far as it could be followed
  uint64_t acked = 0;  // HighestAcked
};
// ScanLog and HighestAcked in one. An error of `visitor` ends the walk alone.
LogReading ReadLog(std::span<const std::byte> image, const RegionInfo& info,
                   uint64_t known_acked = 0, const RecordVisitor& visitor = nullptr);

// Returns the greatest seq that the head or a valid record anywhere in the ring, of any lap or
// epoch, shows to be acknowledged; 0: none. It is valid even if ScanLog finds the log damaged. No
// member's log that ends before it may be used.
uint64_t HighestAcked(std::span<const std::byte> image, const RegionInfo& info);

// The same, of what the primary will not take back either (RecordHeader::acked_seq): a head shows
// that of less than it has passed, if it says so.
uint64_t HighestDecided(std::span<const std::byte> image, const RegionInfo& info);

}  // namespace hyperloop
