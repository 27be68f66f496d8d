// FileTable: the files of a region image, as read and checked. The image must have been redone
// (log/redo.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"
#include "region/region_layout.h"

namespace hyperloop {

struct FileEntry {
  bool used = false;
  TableFile file;
  // By index in the file. A log-lane file has exactly as many as its size needs.
  std::vector<uint32_t> extents;
};

// FileId of a table slot: its low 20 bits are the slot, and the bits above are the creating
// record's seq. So the id of a removed or replaced file differs from that of the slot's next file.
// 44 bits of seq suffice for half a year at a million records a second.
inline FileId MakeFileId(uint32_t slot, uint64_t created_seq) { return slot | created_seq << 20; }
inline uint32_t SlotOf(FileId id) { return static_cast<uint32_t>(id & 0xfffff); }

struct FileTable {
  std::vector<FileEntry> slots;
  std::vector<MapEntry> map;  // one for each extent

  // Reads and validates table and map. kCorruption names the slot or extent and what is wrong: a
  // bad entry or size, a name that two files have, an extent that belongs to no file, a missing
  // extent, a size beyond the data area, or an extent whose length does not agree with the file's
  // size.
  static Result<FileTable> Load(std::span<const std::byte> image, const RegionInfo& info);
  // As Load, from the region's bytes between binding_offset and data_offset.
  static Result<FileTable> LoadMetadata(std::span<const std::byte> metadata,
                                        const RegionInfo& info);
  std::vector<FileInfo> List() const;  // by name
  // Copies bytes [offset, offset+out.size()) of a log-lane file, which must lie within its size.
  void ReadBytes(std::span<const std::byte> image, const RegionInfo& info, uint32_t slot,
                 uint64_t offset, std::span<char> out) const;
};

}  // namespace hyperloop
