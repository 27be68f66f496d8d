#include "journal/log_scan.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace hyperloop {
namespace {

std::string Missing(const LogCursor& tail, uint64_t ring_offset) {
  return "record " + std::to_string(tail.seq + 1) + " at region offset " +
         std::to_string(kJournalOffset + ring_offset) + " is missing or damaged";
}

// Searches the ring for a record that states a greater acknowledged seq than `seq`. Returns the
// region offset of the record that states the greatest one, and sets `acked` to it; 0: none does.
// What a valid record of this group states is true, whatever its lap or epoch. Bytes that users
// wrote are in the ring too, but are never taken for a record, because nobody outside the group
// knows magic and seed. The search ends after a bounded amount of checking, so that damage cannot
// make it quadratic.
uint64_t FindEvidence(std::span<const std::byte> ring, const RegionInfo& info, uint64_t seq,
                      uint64_t* acked) {
  uint64_t found = 0;
  uint64_t budget = 64 * ring.size();
  for (uint64_t at = 0; at < ring.size(); at += kRecordAlign) {
    uint32_t magic;
    std::memcpy(&magic, ring.data() + at, sizeof(magic));
    if (magic != info.record_magic) continue;
    RecordHeader header;
    std::memcpy(&header, ring.data() + at, sizeof(header));
    if (header.acked_seq <= seq || header.acked_seq >= header.seq) continue;
    const uint64_t cost = std::min<uint64_t>(header.length, ring.size());
    if (cost > budget) break;
    budget -= cost;
    RecordView view;
    if (ParseRecord(ring.subspan(at), info, &view) != RecordCheck::kValid) continue;
    seq = *acked = view.header.acked_seq;
    found = kJournalOffset + at;
  }
  return found;
}

// Checks that the record behind `state.tail`, where the log ends, was not acknowledged.
Status CheckEnd(std::span<const std::byte> ring, const RegionInfo& info, const LogState& state,
                uint64_t known_acked) {
  const uint64_t ring_offset = state.tail.position % ring.size();
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
  uint64_t acked = 0;
  const uint64_t evidence = FindEvidence(ring, info, state.tail.seq, &acked);
  if (evidence == 0) return {};
  return Corruption(Missing(state.tail, ring_offset) + ", but the record at region offset " +
                    std::to_string(evidence) + " states that everything up to " +
                    std::to_string(acked) + " was acknowledged; use another member's log");
}

// Does the work of ScanLog. After a failure `result` describes the records before it.
Status Walk(std::span<const std::byte> image, const RegionInfo& info, uint64_t known_acked,
            const RecordVisitor& visitor, LogState* result) {
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
    if (check == RecordCheck::kNone || !Continues(view.header, state.tail)) break;
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
  return CheckEnd(ring, info, state, known_acked);
}

}  // namespace

bool Continues(const RecordHeader& header, const LogCursor& tail) {
  return header.seq == tail.seq + 1 && header.epoch >= tail.epoch && header.prev_crc == tail.crc;
}

Result<LogState> ScanLog(std::span<const std::byte> image, const RegionInfo& info,
                         uint64_t known_acked, const RecordVisitor& visitor) {
  if (image.size() < info.geometry.journal_end()) {
    return Corruption("image of " + std::to_string(image.size()) + " B ends within the journal");
  }
  LogState state;
  HL_RETURN_IF_ERROR(Walk(image, info, known_acked, visitor, &state));
  return state;
}

uint64_t HighestAcked(std::span<const std::byte> image, const RegionInfo& info) {
  if (image.size() < info.geometry.journal_end()) return 0;
  LogState state;
  Walk(image, info, 0, nullptr, &state).IgnoreError();
  uint64_t acked = state.highest_acked;
  FindEvidence(image.subspan(kJournalOffset, info.geometry.journal_size), info, acked, &acked);
  return acked;
}

uint64_t HighestDecided(std::span<const std::byte> image, const RegionInfo& info) {
  if (image.size() < info.geometry.journal_end()) return 0;
  const Result<Head> head = ReadHead(image, info);
  uint64_t decided = head.ok() ? head->cursor.seq - head->undecided : 0;
  FindEvidence(image.subspan(kJournalOffset, info.geometry.journal_size), info, decided, &decided);
  return decided;
}

}  // namespace hyperloop
