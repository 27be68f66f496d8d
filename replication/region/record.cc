#include "region/record.h"

#include <cstring>

#include "region/crc32c.h"

namespace hyperloop {
namespace {

// Whether the content of a record with a right CRC is one that this version writes.
bool WellFormed(const RecordView& view, const RegionInfo& info) {
  const RecordHeader& h = view.header;
  if (h.zero0 != 0 || h.seq == 0 || h.acked_seq >= h.seq || h.executed_seq > h.acked_seq)
    return false;
  const auto type = static_cast<RecordType>(h.type);
  switch (type) {
    case RecordType::kPad:
      return h.entry_count == 0 && view.payload.empty() && h.file_slot == kNoSlot &&
             h.file_end == 0;
    case RecordType::kAppend:
      if (h.file_slot >= info.geometry.table_capacity) return false;
      break;
    case RecordType::kEpoch:
      if (h.entry_count != 1 || view.payload.size() != sizeof(ConfigurationBlock) ||
          view.entry(0).destination != info.geometry.configuration_offset())
        return false;
      [[fallthrough]];
    case RecordType::kStatements:
    case RecordType::kNamespace:
    case RecordType::kBinding:
      if (h.file_slot != kNoSlot || h.file_end != 0) return false;
      break;
    default:
      return false;
  }
  if (h.entry_count == 0) return false;
  uint64_t payload = 0;
  for (size_t i = 0; i < h.entry_count; ++i) {
    const RecordEntry entry = view.entry(i);
    if (entry.zero != 0 || entry.length == 0 ||
        !info.geometry.Applied(entry.destination, entry.length))
      return false;
    payload += entry.length;
  }
  return payload == view.payload.size();
}

}  // namespace

RecordEntry RecordView::entry(size_t i) const {
  RecordEntry entry;
  std::memcpy(&entry, entry_bytes.data() + i * sizeof(RecordEntry), sizeof(entry));
  return entry;
}

uint32_t RecordCrc(const std::byte* record, uint64_t length, uint32_t seed) {
  // Three steps: the magic, 0 in place of the crc field, and the rest.
  static constexpr uint32_t kZero = 0;
  uint32_t crc = Crc32c(seed, record, offsetof(RecordHeader, crc));
  crc = Crc32c(crc, &kZero, sizeof(kZero));
  constexpr size_t kRest = offsetof(RecordHeader, prev_crc);
  return Crc32c(crc, record + kRest, length - kRest);
}

RecordCheck ParseRecord(std::span<const std::byte> bytes, const RegionInfo& info,
                        RecordView* view) {
  if (bytes.size() < sizeof(RecordHeader)) return RecordCheck::kNone;
  RecordView v;
  std::memcpy(&v.header, bytes.data(), sizeof(RecordHeader));
  const RecordHeader& h = v.header;
  if (h.magic != info.record_magic || h.length < sizeof(RecordHeader) || h.length > bytes.size())
    return RecordCheck::kNone;
  uint64_t covered = h.length;
  if (h.type == static_cast<uint8_t>(RecordType::kPad)) {
    covered = sizeof(RecordHeader);
  } else if (h.length > info.geometry.max_record) {
    return RecordCheck::kNone;
  }
  const uint64_t entries = uint64_t{h.entry_count} * sizeof(RecordEntry);
  if (RecordLength(h.entry_count, 0) > covered) return RecordCheck::kNone;
  if (RecordCrc(bytes.data(), covered, info.seed) != h.crc) return RecordCheck::kNone;
  v.entry_bytes = bytes.subspan(sizeof(RecordHeader), entries);
  v.payload =
      bytes.subspan(sizeof(RecordHeader) + entries, covered - sizeof(RecordHeader) - entries);
  const bool pad_fits =
      h.type != static_cast<uint8_t>(RecordType::kPad) || h.length == bytes.size();
  if (!pad_fits || !WellFormed(v, info)) {
    view->header = v.header;
    return RecordCheck::kMalformed;
  }
  *view = v;
  return RecordCheck::kValid;
}

}  // namespace hyperloop
