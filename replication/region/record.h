// Journal records: a header of 64 B, entries and payload, in one piece in the ring.
//
// A record continues the log if its seq is the previous record's plus 1, its epoch is not smaller,
// and it carries the previous record's CRC. So torn bytes, and records of an older lap or of an
// epoch that was cut off, are never taken for a part of the log, even if their own CRC is right.
// Magic and seed of the CRC come from the group's secret, so no payload can be made to look like a
// record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "region/region_layout.h"

namespace hyperloop {

enum class RecordType : uint8_t {
  // Fills the ring to its end. `length` says how far; only the header is written and under the CRC.
  kPad = 1,
  kEpoch = 2,  // first record of a new epoch; its one entry is the configuration block
  // File bytes, and the map entries of extents that they begin. The size of file_slot becomes
  // max(size, file_end), and the new bytes are added to the map entry of the extent that they
  // continue.
  kAppend = 3,
  kStatements = 4,  // sizes and map entries that result from earlier append records
  kNamespace = 5,   // table entries, extent map entries
  kBinding = 6,
};

struct RecordHeader {
  uint32_t magic;     // RegionInfo::record_magic
  uint32_t crc;       // over the record with crc = 0, seeded with the group
  uint32_t prev_crc;  // the previous record's crc; the seed for seq 1
  uint8_t type;
  uint8_t zero0;
  uint16_t entry_count;
  uint64_t epoch;
  uint64_t seq;
  // Every record up to acked_seq was durable on every replica when this one was made, and it was
  // decided that no failed call takes it back (decisions.h). Every record up to executed_seq was
  // executed.
  uint64_t acked_seq;
  uint64_t executed_seq;
  uint32_t length;     // bytes of header, entries and payload; the next record begins at the next
                       // multiple of 64
  uint32_t file_slot;  // kAppend: file table slot; else kNoSlot
  uint64_t file_end;   // kAppend: end of the file after this append; else 0
};
static_assert(sizeof(RecordHeader) == 64 && offsetof(RecordHeader, epoch) == 16 &&
              offsetof(RecordHeader, length) == 48);

// The payloads of a record follow its entries without gaps, in their order.
struct RecordEntry {
  uint64_t destination;  // region offset
  uint32_t length;       // at least 1
  uint32_t zero;
};
static_assert(sizeof(RecordEntry) == 16);

inline constexpr uint64_t AlignRecord(uint64_t n) {
  return (n + kRecordAlign - 1) & ~(kRecordAlign - 1);
}
// The bytes that a record with so many entries and payload bytes occupies before alignment.
inline constexpr uint64_t RecordLength(uint64_t entries, uint64_t payload) {
  return sizeof(RecordHeader) + entries * sizeof(RecordEntry) + payload;
}

struct RecordView {
  RecordHeader header{};                   // a copy
  std::span<const std::byte> entry_bytes;  // entry_count * 16 B, unaligned
  std::span<const std::byte> payload;
  RecordEntry entry(size_t i) const;
};

// The CRC of the record's first `length` bytes, in which its crc field counts as 0.
uint32_t RecordCrc(const std::byte* record, uint64_t length, uint32_t seed);

enum class RecordCheck {
  kValid,
  kNone,       // no record: magic, bounds or CRC are wrong
  kMalformed,  // the CRC is right but the content breaks the layout: a bug or another version
};
// `bytes`: from a record boundary to the end of the ring. Checks the record alone, and not whether
// it continues the log. Sets `view` on kValid; on kMalformed only its header.
RecordCheck ParseRecord(std::span<const std::byte> bytes, const RegionInfo& info, RecordView* view);

}  // namespace hyperloop
