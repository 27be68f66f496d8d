#include "log/file_table.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace hyperloop {
namespace {

std::string Slot(uint32_t slot, const TableFile& file) {
  return "file table slot " + std::to_string(slot) + " (\"" + file.name + "\")";
}

// The number of bytes that a file of `size` bytes has in its extent `index`.
uint64_t LengthIn(uint64_t size, uint32_t index, const RegionGeometry& g) {
  return std::min<uint64_t>(size - uint64_t{index} * g.extent_size, g.extent_size);
}

Status LoadSlots(std::span<const std::byte> metadata, const RegionInfo& info, FileTable* table) {
  const RegionGeometry& g = info.geometry;
  std::unordered_set<std::string> names;
  table->slots.resize(g.table_capacity);
  for (uint32_t slot = 0; slot < g.table_capacity; ++slot) {
    auto file = ParseTableEntry(
        metadata.subspan(g.EntryOffset(slot) - g.binding_offset, sizeof(TableEntry)), info);
    if (file.status().code() == Code::kNotFound) continue;
    if (!file.ok()) return file.status().WithContext("file table slot " + std::to_string(slot));
    if (!names.insert(file->name).second)
      return Corruption(Slot(slot, *file) + ": a second file of that name");
    const bool has_extents = file->lane == static_cast<uint8_t>(Lane::kLog);
    if (has_extents && file->size > g.data_bytes()) {
      return Corruption(Slot(slot, *file) + ": " + std::to_string(file->size) +
                        " B are more than the data area");
    }
    FileEntry& entry = table->slots[slot];
    entry.used = true;
    entry.extents.assign(has_extents ? g.ExtentsFor(file->size) : 0, UINT32_MAX);
    entry.file = std::move(*file);
  }
  return {};
}

Status LoadMap(std::span<const std::byte> metadata, const RegionInfo& info, FileTable* table) {
  const RegionGeometry& g = info.geometry;
  table->map.resize(g.extent_count);
  std::memcpy(table->map.data(), metadata.data() + (g.map_offset - g.binding_offset),
              g.extent_count * sizeof(MapEntry));
  for (uint32_t extent = 0; extent < g.extent_count; ++extent) {
    const MapEntry& entry = table->map[extent];
    const auto bad = [&](const std::string& why) {
      const std::string slot =
          entry.slot_plus_one == 0 ? "no slot" : "slot " + std::to_string(entry.slot_plus_one - 1);
      return Corruption("extent " + std::to_string(extent) + " (" + slot + ", index " +
                        std::to_string(entry.index) + "): " + why);
    };
    if (entry.slot_plus_one == 0) {
      if (entry != MapEntry{}) return bad("free, but its map entry is not empty");
      continue;
    }
    const uint32_t slot = entry.slot_plus_one - 1;
    if (slot >= g.table_capacity || !table->slots[slot].used) return bad("belongs to no file");
    auto& extents = table->slots[slot].extents;
    if (entry.index >= extents.size()) return bad("lies beyond the end of its file");
    if (extents[entry.index] != UINT32_MAX) return bad("a second extent for the same place");
    extents[entry.index] = extent;
    const uint64_t length = LengthIn(table->slots[slot].file.size, entry.index, g);
    if (entry.length != length) {
      return bad("counts " + std::to_string(entry.length) + " B, the file's size says " +
                 std::to_string(length));
    }
  }
  for (uint32_t slot = 0; slot < g.table_capacity; ++slot) {
    const auto& extents = table->slots[slot].extents;
    const auto hole = std::find(extents.begin(), extents.end(), UINT32_MAX);
    if (hole != extents.end()) {
      return Corruption(Slot(slot, table->slots[slot].file) + ": extent " +
                        std::to_string(hole - extents.begin()) + " of " +
                        std::to_string(extents.size()) + " is missing");
    }
  }
  return {};
}

}  // namespace

Result<FileTable> FileTable::Load(std::span<const std::byte> image, const RegionInfo& info) {
  if (image.size() < info.geometry.region_size) {
    return Corruption("image of " + std::to_string(image.size()) + " B is shorter than its region");
  }
  const RegionGeometry& g = info.geometry;
  return LoadMetadata(image.subspan(g.binding_offset, g.data_offset - g.binding_offset), info);
}

Result<FileTable> FileTable::LoadMetadata(std::span<const std::byte> metadata,
                                          const RegionInfo& info) {
  if (metadata.size() != info.geometry.data_offset - info.geometry.binding_offset) {
    return Internal("metadata of " + std::to_string(metadata.size()) + " B does not fit a region");
  }
  FileTable table;
  HL_RETURN_IF_ERROR(LoadSlots(metadata, info, &table));
  HL_RETURN_IF_ERROR(LoadMap(metadata, info, &table));
  return table;
}

std::vector<FileInfo> FileTable::List() const {
  std::vector<FileInfo> files;
  for (uint32_t slot = 0; slot < slots.size(); ++slot) {
    if (!slots[slot].used) continue;
    const TableFile& file = slots[slot].file;
    files.push_back({MakeFileId(slot, file.created_seq), file.name, static_cast<Lane>(file.lane),
                     file.size, file.checksum});
  }
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.name < b.name; });
  return files;
}

void FileTable::ReadBytes(std::span<const std::byte> image, const RegionInfo& info, uint32_t slot,
                          uint64_t offset, std::span<char> out) const {
  const RegionGeometry& g = info.geometry;
  const auto& extents = slots[slot].extents;
  while (!out.empty()) {
    const uint64_t within = offset % g.extent_size;
    const uint64_t n = std::min<uint64_t>(out.size(), g.extent_size - within);
    std::memcpy(out.data(), image.data() + g.ExtentOffset(extents[offset / g.extent_size]) + within,
                n);
    offset += n;
    out = out.subspan(n);
  }
}

}  // namespace hyperloop
