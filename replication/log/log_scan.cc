#include "log/log_scan.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hyperloop {
namespace {

std::string Missing(const LogCursor& tail, uint64_t ring_offset) {
  return "record " + std::to_string(tail.seq + 1) + " at region offset " +
         std::to_string(kJournalOffset + ring_offset) + " is missing or damaged";
}

// The greatest acknowledged seq that a record in the ring states, if it is greater than the one
// searched with.
struct Evidence {
  uint64_t acked = 0;
  uint64_t offset = 0;  // region offset of that record; 0: there is none
};

// Searches the ring for a record that states a greater acknowledged seq than `acked`. What a valid
// record of this group states is true, whatever its lap or epoch. Bytes that users wrote are in the
// ring too, but are never taken for a record, because nobody outside the group knows magic and
// seed. The search ends after a bounded amount of checking, so that damage cannot make it
// quadratic.
Evidence FindEvidence(std::span<const std::byte> ring, const RegionInfo& info, uint64_t acked) {
  Evidence found{acked, 0};
  uint64_t budget = 64 * ring.size();
  for (uint64_t at = 0; at < ring.size(); at += kRecordAlign) {
    uint32_t magic;
    std::memcpy(&magic, ring.data() + at, sizeof(magic));
    if (magic != info.record_magic) continue;
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.acked_seq <= found.acked || header.acked_seq >= header.seq) continue;
    const uint64_t cost = std::min<uint64_t>(header.length, ring.size());
    if (cost > budget) break;
    budget -= cost;
    RecordView view;
    if (ParseRecord(ring.subspan(at), info, &view) != RecordCheck::kValid) continue;
    found = {view.header.acked_seq, kJournalOffset + at};
  }
  return found;
}

// Checks that the record behind `state.tail`, where the log ends, was not acknowledged.
Status CheckEnd(const RegionInfo& info, const LogState& state, uint64_t known_acked,
                const Evidence& evidence) {
  const uint64_t ring_offset = state.tail.position % info.geometry.journal_size;
  if (known_acked > state.tail.seq) {
    return Corruption(Missing(state.tail, ring_offset) +
                      ", but another member knows that everything up to " +
                      std::to_string(known_acked) + " was acknowledged; use another member's log");
  }
  if (state.highest_acked > state.tail.seq) {
    return Corruption(
        Missing(state.tail, ring_offset) + ", but the log itself states that everything up to " +
        std::to_string(state.highest_acked) + " was acknowledged; use another member's log");
  }
  if (evidence.acked <= state.tail.seq) return {};
  return Corruption(Missing(state.tail, ring_offset) + ", but the record at region offset " +
                    std::to_string(evidence.offset) + " states that everything up to " +
                    std::to_string(evidence.acked) + " was acknowledged; use another member's log");
}

// Follows the log to its end. After a failure `result` describes the records before it.
Status Walk(std::span<const std::byte> image, const RegionInfo& info, const RecordVisitor& visitor,
            LogState* result) {
  const uint64_t size = info.geometry.journal_size;
  const auto ring = image.subspan(kJournalOffset, size);
  LogState& state = *result;
  HL_ASSIGN_OR_RETURN(state.head, ReadHead(image, info));
  state.tail = state.head.cursor;
  state.highest_acked = state.head.cursor.seq;
  while (true) {
    const uint64_t left = size - (state.tail.position - state.head.cursor.position);
    const uint64_t at = state.tail.position % size;
    RecordView view;
    const RecordCheck check =
        left == 0 ? RecordCheck::kNone : ParseRecord(ring.subspan(at), info, &view);
    if (check == RecordCheck::kNone || !Continues(view.header, state.tail)) return {};
    // No primary writes over the records behind the head, so no record is longer than the room
    // before it. Nor would the log end here: one that begins at this end would go on.
    if (check == RecordCheck::kMalformed || AlignRecord(view.header.length) > left) {
      return Corruption("record " + std::to_string(view.header.seq) + " at region offset " +
                        std::to_string(kJournalOffset + at) +
                        " passes its checksum but holds impossible values");
    }
    if (visitor) HL_RETURN_IF_ERROR(visitor(view, at));
    const RecordHeader& h = view.header;
    state.tail = {h.seq, h.epoch, state.tail.position + AlignRecord(h.length), h.crc};
    state.highest_acked = std::max(state.highest_acked, h.acked_seq);
    ++state.records;
  }
}

std::span<const std::byte> RingOf(std::span<const std::byte> image, const RegionInfo& info) {
  return image.subspan(kJournalOffset, info.geometry.journal_size);
}

}  // namespace

bool Continues(const RecordHeader& header, const LogCursor& tail) {
  return header.seq == tail.seq + 1 && header.epoch >= tail.epoch && header.prev_crc == tail.crc;
}

LogReading ReadLog(std::span<const std::byte> image, const RegionInfo& info, uint64_t known_acked,
                   const RecordVisitor& visitor) {
  LogReading out;
  if (image.size() < info.geometry.journal_end()) {
    out.error =
        Corruption("image of " + std::to_string(image.size()) + " B ends within the journal");
    return out;
  }
  out.error = Walk(image, info, visitor, &out.log);
  const Evidence evidence = FindEvidence(RingOf(image, info), info, out.log.highest_acked);
  out.acked = evidence.acked;
  if (out.error.ok()) out.error = CheckEnd(info, out.log, known_acked, evidence);
  return out;
}

Result<LogState> ScanLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked, const RecordVisitor& visitor) {
  const LogReading read = ReadLog(image, info, known_acked, visitor);
  HL_RETURN_IF_ERROR(read.error);
  return read.log;
}

uint64_t HighestAcked(std::span<const std::byte> image, const RegionInfo& info) {
  return ReadLog(image, info).acked;
}

uint64_t HighestDecided(std::span<const std::byte> image, const RegionInfo& info) {
  if (image.size() < info.geometry.journal_end()) return 0;
  const Result<Head> head = ReadHead(image, info);
  const uint64_t decided = head.ok() ? head->cursor.seq - head->undecided : 0;
  return FindEvidence(RingOf(image, info), info, decided).acked;
}

}  // namespace hyperloop
