// Redo: brings a region image up to the end of its log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hyperloop/core/status.h"
#include "journal/log_scan.h"

namespace hyperloop {

// Applies one record: each payload to its place; an append also raises the file's size to file_end.
void ApplyRecord(std::span<std::byte> image, const RegionInfo& info, const RecordView& record);

// Scans the log (see ScanLog) and applies every record behind the head, in order. The head and the
// ring stay as they are, so running it again, or on an image where any later records were executed
// already, gives the same bytes. The whole log is checked before the first byte is changed; on
// failure the image is unchanged.
Result<LogState> Redo(std::span<std::byte> image, const RegionInfo& info, uint64_t known_acked = 0);

// Puts the head at `cursor` in one of the copies (the older), for a caller that has redone up to
// there and will make the image durable. Returns the region offset of the 64 B that changed.
uint64_t WriteHead(std::span<std::byte> image, const RegionInfo& info, const LogCursor& cursor);

}  // namespace hyperloop
