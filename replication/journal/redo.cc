#include "journal/redo.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace hyperloop {

void ApplyRecord(std::span<std::byte> image, const RegionInfo& info, const RecordView& record) {
  const std::byte* from = record.payload.data();
  for (size_t i = 0; i < record.header.entry_count; ++i) {
    const RecordEntry entry = record.entry(i);
    std::memcpy(image.data() + entry.destination, from, entry.length);
    from += entry.length;
  }
  if (record.header.type != static_cast<uint8_t>(RecordType::kAppend)) return;
  std::byte* field = image.data() + info.geometry.EntryOffset(record.header.file_slot) +
                     offsetof(TableEntry, size);
  uint64_t size;
  std::memcpy(&size, field, sizeof(size));
  size = std::max(size, record.header.file_end);
  std::memcpy(field, &size, sizeof(size));
}

Result<LogState> Redo(std::span<std::byte> image, const RegionInfo& info, uint64_t known_acked) {
  if (image.size() < info.geometry.region_size) {
    return Corruption("image of " + std::to_string(image.size()) + " B, the superblock states " +
                      std::to_string(info.geometry.region_size));
  }
  std::vector<RecordView> records;
  const auto collect = [&](const RecordView& record, uint64_t) {
    records.push_back(record);
    return Status();
  };
  HL_ASSIGN_OR_RETURN(LogState state, ScanLog(image, info, known_acked, collect));
  for (const RecordView& record : records)
    ApplyRecord(image, info, record);  // views of the ring, which stays
  return state;
}

uint64_t WriteHead(std::span<std::byte> image, const RegionInfo& info, const LogCursor& cursor) {
  Head head{1, cursor};
  auto present = ReadHead(image, info);
  if (present.ok()) head.generation = present->generation + 1;
  const uint64_t offset = kHeadOffsets[head.generation & 1];
  const HeadBlock block = MakeHeadBlock(info, head);
  std::memcpy(image.data() + offset, &block, sizeof(block));
  return offset;
}

}  // namespace hyperloop
