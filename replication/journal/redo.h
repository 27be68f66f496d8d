// Redo: brings a region image up to the end of its log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyperloop/core/status.h"
#include "journal/log_scan.h"

namespace hyperloop {

// A part of a region, or a copy of one, in memory.
struct RegionWindow {
  std::span<std::byte> bytes;
  uint64_t base = 0;  // region offset of the first

  // The bytes at [offset, offset + size); null: not all of them lie in here.
  std::byte* Find(uint64_t offset, uint64_t size) const;
  // Copies what of `from`, meant for region offset `destination`, falls in here.
  void Put(uint64_t destination, std::span<const std::byte> from) const;
};

// Applies one record to what the windows hold of a region, and nothing else: each payload to its
// place. An append also raises the file's size to file_end, unless the size fails its checksum, and
// counts the bytes that go on with an extent into its map entry. An entry that does not end where
// the bytes begin is left: it was stated for a later record already, or is stated by one.
void ApplyRecord(std::span<const RegionWindow> windows, const RegionInfo& info,
                 const RecordView& record);
inline void ApplyRecord(std::span<std::byte> image, const RegionInfo& info,
                        const RecordView& record) {
  const RegionWindow whole{image, 0};
  ApplyRecord(std::span(&whole, 1), info, record);
}

// Scans the log (see ScanLog) and applies every record behind the head, in order. The head and the
// ring stay as they are, so running it again, or on an image where any later records were executed
// already, gives the same bytes. The whole log is checked before the first byte is changed; on
// failure the image is unchanged.
Result<LogState> Redo(std::span<std::byte> image, const RegionInfo& info, uint64_t known_acked = 0);

// Puts the head at `cursor` in one of the copies (the older), for a caller that has redone up to
// there and will make the image durable. Returns the region offset of the 64 B that changed.
uint64_t WriteHead(std::span<std::byte> image, const RegionInfo& info, const LogCursor& cursor);

}  // namespace hyperloop
