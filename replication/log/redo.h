// Redo: brings a region image up to the end of its log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyperloop/core/status.h"
#include "log/log_scan.h"

namespace hyperloop {

// A part of a region, or a copy of one, in memory.
struct RegionWindow {
  std::span<std::byte> bytes;
  uint64_t base = 0;  // region offset of the first byte

  // The bytes at region offsets [offset, offset + size). Null: the window does not have all of
  // them.
  std::byte* Find(uint64_t offset, uint64_t size) const;
  // Copies the part of `from`, which belongs at region offset `destination`, that lies in the
  // window.
  void Put(uint64_t destination, std::span<const std::byte> from) const;
};

// Applies one record to the parts of a region that the windows hold: it copies each payload to its
// place. An append also raises the file's size to file_end, unless the size fails its checksum, and
// adds its bytes to the map entry of the extent that they continue. A map entry that does not end
// where the bytes begin stays as it is, because a later statement has set it or will set it.
void ApplyRecord(std::span<const RegionWindow> windows, const RegionInfo& info,
                 const RecordView& record);
inline void ApplyRecord(std::span<std::byte> image, const RegionInfo& info,
                        const RecordView& record) {
  const RegionWindow whole{image, 0};
  ApplyRecord(std::span(&whole, 1), info, record);
}

// Scans the log (see ScanLog) and applies every record behind the head, in order. The head and the
// ring stay unchanged. So a second redo gives the same bytes, and so does a redo of an image in
// which some records were executed already. The whole log is checked before the first byte is
// changed. After an error the image is unchanged.
Result<LogState> Redo(std::span<std::byte> image, const RegionInfo& info, uint64_t known_acked = 0);

// Sets the older copy of the head to `cursor`. The caller has redone the image up to there, and
// will make it durable. Returns the region offset of the 64 B that changed.
uint64_t WriteHead(std::span<std::byte> image, const RegionInfo& info, const LogCursor& cursor);

}  // namespace hyperloop
