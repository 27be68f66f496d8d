#include "log/redo.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "region/crc32c.h"

namespace hyperloop {

namespace {

using Windows = std::span<const RegionWindow>;

std::byte* Find(Windows windows, uint64_t offset, uint64_t size) {
  for (const RegionWindow& window : windows) {
    if (std::byte* const found = window.Find(offset, size)) return found;
  }
  return nullptr;
}

void RaiseSize(Windows windows, const RegionInfo& info, const RecordHeader& header) {
  std::byte* const field =
      Find(windows, info.geometry.SizeOffset(header.file_slot), sizeof(TableSize));
  if (field == nullptr) return;
  TableSize size;
  std::memcpy(&size, field, sizeof(size));
  if (!CheckTableSize(info, size) || size.size >= header.file_end) return;
  size = MakeTableSize(info, header.file_end);
  std::memcpy(field, &size, sizeof(size));
}

// `bytes`: what an append to the file in `slot` puts at region offset `at`, within one extent.
void ExtendExtent(Windows windows, const RegionInfo& info, uint32_t slot, uint64_t at,
                  std::span<const std::byte> bytes) {
  const RegionGeometry& g = info.geometry;
  const auto extent = static_cast<uint32_t>(g.ExtentAt(at));
  std::byte* const field = Find(windows, g.MapOffset(extent), sizeof(MapEntry));
  if (field == nullptr) return;
  MapEntry entry;
  std::memcpy(&entry, field, sizeof(entry));
  if (entry.slot_plus_one != slot + 1 || entry.length != at - g.ExtentOffset(extent)) return;
  entry.length += static_cast<uint32_t>(bytes.size());
  entry.crc = Crc32c(entry.crc, bytes.data(), bytes.size());
  std::memcpy(field, &entry, sizeof(entry));
}

void ExtendExtents(Windows windows, const RegionInfo& info, uint32_t slot, uint64_t at,
                   std::span<const std::byte> bytes) {
  const RegionGeometry& g = info.geometry;
  if (at < g.data_offset) return;
  while (!bytes.empty() && g.ExtentAt(at) < g.extent_count) {
    const uint64_t left = g.extent_size - ((at - g.data_offset) & (g.extent_size - 1));
    const auto part = bytes.first(std::min<uint64_t>(left, bytes.size()));
    ExtendExtent(windows, info, slot, at, part);
    at += part.size();
    bytes = bytes.subspan(part.size());
  }
}

}  // namespace

std::byte* RegionWindow::Find(uint64_t offset, uint64_t size) const {
  if (offset < base || offset - base > bytes.size() || size > bytes.size() - (offset - base))
    return nullptr;
  return bytes.data() + (offset - base);
}

void RegionWindow::Put(uint64_t destination, std::span<const std::byte> from) const {
  const uint64_t begin = std::max(destination, base);
  const uint64_t end = std::min(destination + from.size(), base + bytes.size());
  if (begin >= end) return;
  std::memcpy(bytes.data() + (begin - base), from.data() + (begin - destination), end - begin);
}

void ApplyRecord(std::span<const RegionWindow> windows, const RegionInfo& info,
                 const RecordView& record) {
  const auto each = [&](auto&& use) {
    std::span<const std::byte> rest = record.payload;
    for (size_t i = 0; i < record.header.entry_count; ++i) {
      const RecordEntry entry = record.entry(i);
      use(entry.destination, rest.first(entry.length));
      rest = rest.subspan(entry.length);
    }
  };
  each([&](uint64_t to, std::span<const std::byte> bytes) {
    for (const RegionWindow& window : windows) window.Put(to, bytes);
  });
  if (record.header.type != static_cast<uint8_t>(RecordType::kAppend)) return;
  RaiseSize(windows, info, record.header);
  // This comes after the pieces were put: the map entry of an extent that the record begins is one
  // of them, and counts the bytes already.
  each([&](uint64_t to, std::span<const std::byte> bytes) {
    ExtendExtents(windows, info, record.header.file_slot, to, bytes);
  });
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
  // The views point into the ring, which does not change.
  for (const RecordView& record : records) ApplyRecord(image, info, record);
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
