#include "log/image_files.h"

#include <algorithm>
#include <string>

#include "log/log_lane.h"

namespace hyperloop {

Result<uint64_t> ImageFiles::Read(FileId file, uint64_t offset, std::span<char> out) const {
  const auto slot = static_cast<uint32_t>(SlotOf(file));
  if (slot >= table_.slots.size() || !table_.slots[slot].used ||
      MakeFileId(slot, table_.slots[slot].file.created_seq) != file) {
    return NotFound("file id " + std::to_string(file) + ": not of this image");
  }
  const TableFile& info = table_.slots[slot].file;
  if (info.lane != static_cast<uint8_t>(Lane::kLog)) {
    return InvalidArgument("\"" + info.name + "\" is only listed in the log lane");
  }
  if (offset >= info.size) return uint64_t{0};
  const uint64_t n = std::min<uint64_t>(out.size(), info.size - offset);
  table_.ReadBytes(image_, info_, slot, offset, out.first(n));
  return n;
}

GroupRoom ImageFiles::Room() const { return RoomOf(info_.geometry); }

GroupRoom NoFiles::Room() const { return RoomOf(geometry_); }

}  // namespace hyperloop
